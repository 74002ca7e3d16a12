"""`cpu.starve`: a replica gets too little CPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, CpuLimit, Fault, Injection


class CpuStarve(Fault, frozen=True):
    """Hold the processes of a replica or node to a few cores, or to a part of one.

    Why it happens: a noisy neighbour, a runaway daemon, a wrong CPU limit, thermal throttling. The replica is healthy
    in every sense a health check knows, and the whole job goes at its pace.
    """

    name = "cpu.starve"
    roles = frozenset({"replica", "node"})
    removes = False

    cores: Annotated[float, Meta(ge=0.01, le=64)] = 0.2

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (CpuLimit(target, self.cores) for target in aim.targets)
