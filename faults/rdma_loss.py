"""`rdma.loss`: RDMA packets vanish."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Fault, Injection, PortShape, Rail


class RdmaLoss(Fault, frozen=True):
    """Lose a share of what leaves by RDMA ports of a replica, where the kernel sends it (soft RoCE).

    Why it happens: a fabric whose priorities or flow control are set up wrongly drops under load. RDMA expects a fabric
    without losses: each one costs a timeout and all that was sent since.
    """

    name = "rdma.loss"
    removes = False

    percent: Annotated[float, Meta(ge=0.01, le=50)] = 1.0
    rail: Rail | None = None
    """Rail 0, 1 and so on, in the order of the RDMA devices' names; none: all of the target."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (PortShape(target, self.rail, loss_percent=self.percent) for target in aim.targets)
