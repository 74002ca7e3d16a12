"""`gradient.nan`: a gradient is not a number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Action, Aim, Fault, FaultPoint, Injection, Point


class GradientNan(Fault, frozen=True):
    """Put a NaN into the gradient of a replica, before the gradients are exchanged.

    Why it happens: an overflow in low precision, a bad batch, a defective core. The average over all replicas is NaN
    then, and so is every weight of every replica if that update is committed: nothing but a checkpoint brings them
    back.
    """

    name = "gradient.nan"
    removes = False

    times: Annotated[int, Meta(ge=1, le=1000)] = 1
    """In how many steps."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (FaultPoint(target, Point.BEFORE_ALLREDUCE, Action.NAN, times=self.times) for target in aim.targets)
