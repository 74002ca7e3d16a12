"""`process.gil_deadlock`: a trainer hangs with Python's lock held."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Action, Aim, Fault, FaultPoint, Injection, Point


class ProcessGilDeadlock(Fault, frozen=True):
    """Hold Python's global lock in the trainer process of a replica: no Python runs there, native threads go on.

    Why it happens: an extension that waits for another thread without giving the lock back, a fork in a threaded
    process, a stuck allocator. It is the worst kind of hang: heartbeats come from a native thread, so to the
    lighthouse the replica is well and all others wait for it.
    """

    name = "process.gil_deadlock"

    hold_s: Annotated[float, Meta(gt=0, le=60)] = 12.0
    """How long the lock is held; `for_s` should be longer."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (
            FaultPoint(target, Point.IN_FORWARD, Action.HOLD_GIL, delay_s=self.hold_s, times=1)
            for target in aim.targets
        )
