"""What a person asks of a node before faults are made there: its kernel, control groups, interfaces, RDMA links.

Told by the agent, in an annotation of its Lease; `chaos doctor` shows it.
"""

from __future__ import annotations

import os

import msgspec

from chaos.agent.linux import rdma
from chaos.agent.linux.rdma import Port
from chaos.platforms.kubernetes.objects import GROUP
from chaos.platforms.local import cgroups

FACTS = f"{GROUP}/node"
NICS_MAX = 32
"""A node has an interface for each pod as well."""


class Facts(msgspec.Struct, frozen=True):
    """`cgroups` is the version. `carried` has the bytes of each pod with RDMA ports, by its id: over RDMA, over net
    devices.
    """

    kernel: str = ""
    cgroups: int = 0
    nics: tuple[str, ...] = ()
    rdma: tuple[Port, ...] = ()
    carried: dict[str, tuple[int | None, int]] = {}


def facts(carried: dict[str, tuple[int | None, int]]) -> Facts:
    """Of the machine that this runs on, in its network namespace."""
    nics = sorted(name for name in os.listdir("/sys/class/net") if name != "lo" and not _of_a_pod(name))
    versions = [hierarchy.version for hierarchy in cgroups.hierarchies()]
    return Facts(os.uname().release, min(versions, default=0), tuple(nics[:NICS_MAX]), tuple(rdma.ports()), carried)


def _of_a_pod(name: str) -> bool:
    """Its other end lies in another network namespace, and it bears a name that no person gave it."""
    return name.startswith(("veth", "cali", "lxc"))
