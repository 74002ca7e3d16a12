"""`network.bandwidth`: a link becomes slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Fault, Injection, Interface, Shape


class NetworkBandwidth(Fault, frozen=True):
    """Hold what a replica or node sends on one interface to a rate.

    Why it happens: a port that fell back to a lower speed, a card in a slot with too few lanes, a neighbour that takes
    most of an oversubscribed uplink. One slow link sets the pace of every exchange of the whole job.
    """

    name = "network.bandwidth"
    roles = frozenset({"replica", "node"})
    removes = False

    interface: Interface = Interface.DATA
    rate_mbit_s: Annotated[float, Meta(ge=0.1, le=32_000)] = 200.0

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (Shape(target, self.interface, rate_bit_s=round(self.rate_mbit_s * 1_000_000)) for target in aim.targets)
