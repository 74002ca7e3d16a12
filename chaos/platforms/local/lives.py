"""The lives of a local cluster's members, as the runner sees them.

Pods are held by pidfds, which the host sends: a signal cannot hit a process that took over a pid.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from chaos.model.ports import InjectionRefused
from chaos.model.site import Site
from chaos.platforms.lines import Lines
from chaos.platforms.local import owner


@dataclass
class Life:
    """One life of a member as the runner sees it; `pid` counts in the runner's pid namespace."""

    member: str
    incarnation: int
    node: str
    pid: int
    pidfd: int
    mark: str
    site: Site
    events: Path
    lines: Lines
    offset: int = 0
    trainer: int | None = None
    """Pidfd of its trainer, once that told its pid."""
    exited: anyio.Event = field(default_factory=anyio.Event)

    def close(self) -> None:
        for fd in (self.pidfd, self.trainer):
            if fd is not None:
                os.close(fd)
        self.trainer = None


class Lives(dict[str, Life]):
    """Member -> the life it has now, and what the nodes are to an injection."""

    def __init__(self, members: Collection[str]) -> None:
        super().__init__()
        self._members = members
        self.node_sites: dict[str, Site] = {}

    def alive(self, member: str) -> Life:
        """InjectionRefused when the member is not alive."""
        if member not in self._members:
            raise InjectionRefused(f"there is no member {member}")
        life = self.get(member)
        if life is None or pid_of(life.pidfd) is None:
            raise InjectionRefused(f"{member} is not alive")
        return life

    def on(self, node: str) -> list[Life]:
        """The lives on a node now."""
        return [life for life in self.values() if life.node == node]

    def site(self, target: str) -> Site:
        """What a living member or a node is to an injection."""
        if target in self.node_sites:
            return self.node_sites[target]
        return self.alive(target).site

    def addresses(self) -> dict[str, tuple[str, ...]]:
        """Addresses of the living members on both networks, by name."""
        return {
            life.member: tuple(address for nic in life.site.nics.values() for address in nic.addresses)
            for life in self.values()
        }


@contextmanager
def watch(pidfd: int) -> Iterator[int]:
    """A copy of a pidfd to wait on: two tasks may not wait on one, and its life may be closed meanwhile."""
    copy = os.dup(pidfd)
    try:
        yield copy
    finally:
        os.close(copy)


def pid_of(pidfd: int) -> int | None:
    """The process's pid as this process sees it; None when it is gone."""
    text = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    pid = int(fields["Pid"])
    return pid if pid > 0 else None


def find_in_pod(main: int, pid: int) -> int | None:
    """The machine's pid of the process that has `pid` in the pid namespace led by `main`."""
    try:
        namespace = os.readlink(f"/proc/{main}/ns/pid")
    except OSError:
        return None
    for candidate in owner.pids():
        with suppress(OSError):
            status = Path(f"/proc/{candidate}/status").read_text()
            numbers = status.partition("\nNSpid:")[2].partition("\n")[0].split()
            if numbers and int(numbers[-1]) == pid and os.readlink(f"/proc/{candidate}/ns/pid") == namespace:
                return candidate
    return None
