"""`process.freeze`: every process of a replica stands still."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Fault, Freeze, Injection


class ProcessFreeze(Fault, frozen=True):
    """Stop every process of a replica where it is, and let it go on later; nothing is closed, nothing is lost.

    Why it happens: a virtual machine is paused for a live migration, a host swaps or stalls in firmware, someone
    attaches a debugger. Heartbeats end with it, so the job goes on without the replica, which then wakes up in a world
    that has moved on: it must heal and must not bring its old state back.
    """

    name = "process.freeze"

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return map(Freeze, aim.targets)
