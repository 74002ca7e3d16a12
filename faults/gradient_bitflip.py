"""`gradient.bitflip`: one bit of a gradient flips."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Action, Aim, Fault, FaultPoint, Injection, Point


class GradientBitflip(Fault, frozen=True):
    """Flip one bit of the gradient of a replica, before the gradients are exchanged.

    Why it happens: silent data corruption in a core or in memory that no code protects. All replicas take the same
    wrong step, so they stay equal and no comparison between them tells.
    """

    name = "gradient.bitflip"
    removes = False

    times: Annotated[int, Meta(ge=1, le=1000)] = 1
    """In how many steps."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (
            FaultPoint(target, Point.BEFORE_ALLREDUCE, Action.FLIP_GRADIENT, times=self.times) for target in aim.targets
        )
