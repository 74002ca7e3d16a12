"""`weights.bitflip`: one bit of a weight flips."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Action, Aim, Fault, FaultPoint, Injection, Point


class WeightsBitflip(Fault, frozen=True):
    """Flip one bit of a weight of a replica, after a step was committed.

    Why it happens: silent data corruption in memory. That replica trains another model from then on and averages its
    gradients with the others' as if it were the same; nothing crashes and nothing is logged.
    """

    name = "weights.bitflip"
    removes = False

    times: Annotated[int, Meta(ge=1, le=1000)] = 1
    """In how many steps."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (FaultPoint(target, Point.AFTER_COMMIT, Action.FLIP_WEIGHT, times=self.times) for target in aim.targets)
