"""`network.reorder`: packets overtake each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Direction, Fault, Injection, Interface, Shape


class NetworkReorder(Fault, frozen=True):
    """Send a share of packets at once while all others wait, so that they arrive out of order.

    Why it happens: packets of one connection that are spread over several links of a fabric. TCP takes what comes early
    for a sign of loss, and slows down.
    """

    name = "network.reorder"
    roles = frozenset({"replica", "node"})
    removes = False

    percent: Annotated[float, Meta(ge=0.01, le=100)] = 10.0
    delay_ms: Annotated[float, Meta(ge=0.1, le=1000)] = 5.0
    """What the others wait."""
    interface: Interface = Interface.DATA
    direction: Direction = Direction.BOTH
    """Which way packets go that are hit, as the target sees it."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        for target in aim.targets:
            for way in self.direction.ways:
                yield Shape(target, self.interface, delay_ms=self.delay_ms, reorder_percent=self.percent, direction=way)
