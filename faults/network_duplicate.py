"""`network.duplicate`: packets come twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Direction, Fault, Injection, Interface, Shape


class NetworkDuplicate(Fault, frozen=True):
    """Double a share of the packets that a replica or node sends and gets on one interface.

    Why it happens: a loop in a switched network, a bond whose members both deliver. A protocol without numbers of its
    own takes a message for two.
    """

    name = "network.duplicate"
    roles = frozenset({"replica", "node"})
    removes = False

    percent: Annotated[float, Meta(ge=0.01, le=100)] = 5.0
    interface: Interface = Interface.DATA
    direction: Direction = Direction.BOTH
    """Which way packets go that are hit, as the target sees it."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        for target in aim.targets:
            for way in self.direction.ways:
                yield Shape(target, self.interface, duplicate_percent=self.percent, direction=way)
