"""`network.delay`: packets take longer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Direction, Fault, Injection, Interface, Shape, Spread


class NetworkDelay(Fault, frozen=True):
    """Delay what a replica or node sends or gets on one interface, by a fixed time and a random one around it.

    Why it happens: a detour after a link failure, congestion, a congested neighbour in the same fabric, replicas in
    two zones. Rings of replicas pay each delay many times in one step.
    """

    name = "network.delay"
    roles = frozenset({"replica", "node"})
    removes = False

    interface: Interface = Interface.DATA
    delay_ms: Annotated[float, Meta(ge=0.1, le=1000)] = 20.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """How far the delay varies, as a share of it."""
    spread: Spread = Spread.UNIFORM
    """How delays lie around their middle: evenly, as a bell, or with a long tail."""
    direction: Direction = Direction.OUT
    """Which way packets go that are delayed, as the target sees it."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        jitter_ms = self.delay_ms * self.jitter or None
        spread = self.spread if jitter_ms else Spread.UNIFORM
        for target in aim.targets:
            for way in self.direction.ways:
                yield Shape(target, self.interface, None, self.delay_ms, jitter_ms, spread, direction=way)
