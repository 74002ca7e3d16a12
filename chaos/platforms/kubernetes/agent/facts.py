"""What a person asks of a node before faults are made there: its kernel, control groups, interfaces, RDMA links.

Told by the agent, in an annotation of its Lease; `chaos doctor` shows it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from chaos.platforms.kubernetes.objects import GROUP
from chaos.platforms.local import cgroups

FACTS = f"{GROUP}/node"
NICS_MAX = 32
"""A node has an interface for each pod as well."""


class Facts(msgspec.Struct, frozen=True):
    """`cgroups` is the version; `rdma` the state of each port, by `device/port`."""

    kernel: str = ""
    cgroups: int = 0
    nics: tuple[str, ...] = ()
    rdma: dict[str, str] = {}


def facts() -> Facts:
    """Of the machine that this runs on, in its network namespace."""
    nics = sorted(name for name in os.listdir("/sys/class/net") if name != "lo" and not _of_a_pod(name))
    versions = [hierarchy.version for hierarchy in cgroups.hierarchies()]
    return Facts(os.uname().release, min(versions, default=0), tuple(nics[:NICS_MAX]), _rdma())


def _of_a_pod(name: str) -> bool:
    """Its other end lies in another network namespace, and it bears a name that no person gave it."""
    return name.startswith(("veth", "cali", "lxc"))


def _rdma() -> dict[str, str]:
    found = {}
    for port in sorted(Path("/sys/class/infiniband").glob("*/ports/*")):
        with suppress(OSError):
            state = (port / "state").read_text().strip().rpartition(" ")[2]
            found[f"{port.parent.parent.name}/{port.name}"] = state
    return found
