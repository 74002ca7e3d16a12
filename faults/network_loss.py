"""`network.loss`: some packets vanish."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Drop, Fault, Injection


class NetworkLoss(Fault, frozen=True):
    """Lose a share of all packets to and from a replica, or the replicas of a node, by chance.

    Why it happens: dirty optics, an overloaded switch that drops, a bad cable short of failing. Nothing breaks, since
    TCP sends again; but each loss can stall a connection for longer than a whole exchange takes, and everyone waits
    for the slowest.
    """

    name = "network.loss"
    roles = frozenset({"replica", "node"})
    removes = False

    percent: Annotated[float, Meta(ge=0.01, le=50)] = 1.0
    """The share of packets lost, each way; to lose all is `network.blackhole` or `network.partition`."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (Drop(member, percent=self.percent) for member in aim.members())
