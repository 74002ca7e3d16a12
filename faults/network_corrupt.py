"""`network.corrupt`: packets are damaged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Direction, Fault, Injection, Interface, Shape


class NetworkCorrupt(Fault, frozen=True):
    """Flip a bit in a share of the packets that a replica or node sends and gets on one interface.

    Why it happens: a bad cable or a switch with a bad memory chip. Checksums catch nearly all of it and TCP sends
    again, so that it looks like loss; what slips through is a wrong gradient.
    """

    name = "network.corrupt"
    roles = frozenset({"replica", "node"})
    removes = False

    percent: Annotated[float, Meta(ge=0.01, le=50)] = 1.0
    interface: Interface = Interface.DATA
    direction: Direction = Direction.BOTH
    """Which way packets go that are hit, as the target sees it."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        for target in aim.targets:
            for way in self.direction.ways:
                yield Shape(target, self.interface, corrupt_percent=self.percent, direction=way)
