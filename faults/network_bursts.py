"""`network.bursts`: packets vanish in bursts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Direction, Fault, Injection, Interface, Shape


class NetworkBursts(Fault, frozen=True):
    """Lose a share of all packets of one interface, several in a row each time.

    Why it happens: a buffer that overflows, a link that renegotiates, a route that changes. A burst outlasts what
    repairs single losses, so connections wait for a timeout; the same share of single losses hurts far less.
    """

    name = "network.bursts"
    roles = frozenset({"replica", "node"})
    removes = False

    percent: Annotated[float, Meta(ge=0.01, le=50)] = 1.0
    """The share of packets lost, over all."""
    burst: Annotated[float, Meta(ge=1, le=1000)] = 20.0
    """How many are lost in a row, on average."""
    interface: Interface = Interface.DATA
    direction: Direction = Direction.BOTH
    """Which way packets go that are hit, as the target sees it."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        for target in aim.targets:
            for way in self.direction.ways:
                yield Shape(target, self.interface, loss_percent=self.percent, loss_burst=self.burst, direction=way)
