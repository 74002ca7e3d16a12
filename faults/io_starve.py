"""`io.starve`: a replica's disk is slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Fault, Injection, IoLimit


class IoStarve(Fault, frozen=True):
    """Hold what a replica or node reads and writes on its disk to a rate, each way.

    Why it happens: a shared file system under load, a throttled cloud volume whose credits are used up, a degraded
    array. Data loading and checkpoints take longer, and with them the steps of everyone.
    """

    name = "io.starve"
    roles = frozenset({"replica", "node"})
    removes = False

    bytes_s: Annotated[int, Meta(ge=1024, le=10_000_000_000)] = 1_000_000

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (IoLimit(target, self.bytes_s) for target in aim.targets)
