"""What the node itself is to an injection: its interfaces and its kubelet, told from those of other nodes on one kernel
by the network namespace, which the agent shares with its node.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from chaos.agent.linux.freeze import started
from chaos.agent.linux.resource import NotInForce
from chaos.model.injections import Interface
from chaos.model.site import Link, MainProcess, Namespace, Nic, Site
from chaos.platforms.kubernetes.order import Target

KUBELET = "kubelet"
_OWN = "/proc/self/ns/net"


def site(target: Target) -> Site:
    """NotInForce when there is no kubelet that could be told for sure."""
    pid = kubelet()
    ticks = started(pid) if pid else None
    if pid is None or ticks is None:
        raise NotInForce(f"there is not one process called {KUBELET} on the node: is it part of another program?")
    own = Namespace(_OWN, os.stat(_OWN).st_ino)
    nics = {Interface(role): Nic(Link(own, name)) for role, name in target.nics.items()}
    return Site(name=target.member, process=MainProcess(pid, ticks), nics=nics, machine=True)


def kubelet() -> int | None:
    """Its process, where there is exactly one."""
    found, own = [], os.readlink(_OWN)
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "comm").read_text() == f"{KUBELET}\n":
                found += [int(entry.name)] if os.readlink(entry / "ns/net") == own else []
    return found[0] if len(found) == 1 else None
