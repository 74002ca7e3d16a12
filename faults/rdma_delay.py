"""`rdma.delay`: RDMA packets take longer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Fault, Injection, PortShape, Rail


class RdmaDelay(Fault, frozen=True):
    """Delay what leaves by RDMA ports of a replica, where the kernel sends it (soft RoCE).

    Why it happens: paused priorities, a detour by a spine after a link failed, replicas in two halls. A ring waits for
    its slowest link in every one of its rounds.
    """

    name = "rdma.delay"
    removes = False

    delay_ms: Annotated[float, Meta(ge=0.1, le=1000)] = 5.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """How far the delay varies, as a share of it."""
    rail: Rail | None = None
    """Rail 0, 1 and so on, in the order of the RDMA devices' names; none: all of the target."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        jitter_ms = self.delay_ms * self.jitter or None
        return (PortShape(target, self.rail, self.delay_ms, jitter_ms) for target in aim.targets)
