"""`trainer.slow`: one replica is slower than the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Action, Aim, Fault, FaultPoint, Injection, Point


class TrainerSlow(Fault, frozen=True):
    """Hold up each forward pass of a replica for a while.

    Why it happens: a hot GPU that clocks down, a slow memory module, a host that does other work. Stragglers are the
    faults that nobody reports: no timeout is reached, and every replica waits for the slowest at every step.
    """

    name = "trainer.slow"
    removes = False

    delay_s: Annotated[float, Meta(gt=0, le=60)] = 0.5

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (FaultPoint(target, Point.IN_FORWARD, Action.DELAY, delay_s=self.delay_s) for target in aim.targets)
