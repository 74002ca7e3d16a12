"""`rdma.flap`: RDMA ports lose their link again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Fault, Injection, PortDown, Rail, Rhythm


class RdmaFlap(Fault, frozen=True):
    """Take down RDMA ports of a replica and give them back, over and over.

    Why it happens: a transceiver about to fail, a port that renegotiates. Transports that retry for seconds hide a
    short loss; one a little longer breaks every connection of the rail.
    """

    name = "rdma.flap"

    rail: Rail | None = None
    """Rail 0, 1 and so on, in the order of the RDMA devices' names; none: all of the target."""
    period_s: Annotated[float, Meta(ge=0.5, le=120)] = 4.0
    duty: Annotated[float, Meta(ge=0.05, le=0.95)] = 0.5
    """The share of each period without a link."""

    @property
    def rhythm(self) -> Rhythm:
        return Rhythm(self.period_s, self.duty)

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (PortDown(target, self.rail) for target in aim.targets)
