"""Site: what a member or node is to an injection, in the kernel's words.

The platform fills it in where the target lives; whoever makes the injection looks nothing up by itself. Numbers count
as the injector sees them: pids in its pid namespace, paths in its mount namespace.
"""

from __future__ import annotations

import msgspec

from chaos.model.injections import Interface


class Namespace(msgspec.Struct, frozen=True):
    """A network namespace: a file that leads to it (`/proc/PID/ns/net`, `/proc/PID/fd/N` or a bind mount), and its
    inode number, by which a successor at the same path is told from it.
    """

    path: str
    inode: int


class Link(msgspec.Struct, frozen=True):
    """One interface in one namespace."""

    namespace: Namespace
    interface: str


class Nic(msgspec.Struct, frozen=True):
    """An interface of a target. `peer` is the far end of its cable, where there is one that may be taken down."""

    link: Link
    peer: Link | None = None
    addresses: tuple[str, ...] = ()


class MainProcess(msgspec.Struct, frozen=True):
    """A process and its start time (clock ticks since boot, field 22 of /proc/PID/stat): together never reused."""

    pid: int
    started_ticks: int


class Site(msgspec.Struct, frozen=True):
    """One life of a member, or a node. What is None or missing does not exist there.

    `groups` maps a version 1 controller to its directory; `unified` is the version 2 directory, for every controller
    that `groups` does not name. `folder` lies on the file system that disk faults hit, `disk` on the disk that is
    slowed, where that is another one. `machine`: it is the very node that the injector lives on, and its interfaces
    are its own; `process` is its kubelet then.
    """

    name: str
    incarnation: int = 0
    process: MainProcess | None = None
    nics: dict[Interface, Nic] = {}
    groups: dict[str, str] = {}
    unified: str | None = None
    folder: str | None = None
    disk: str | None = None
    machine: bool = False
