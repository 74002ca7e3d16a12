"""`disk.full`: a replica's disk is full."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, DiskFill, Fault, Injection


class DiskFull(Fault, frozen=True):
    """Fill the file system of a replica or node but for a few bytes.

    Why it happens: logs, cores and old checkpoints. Whoever writes there fails: training must go on without, or stop
    with a clear word, and a checkpoint that was cut short must never be loaded.
    """

    name = "disk.full"
    roles = frozenset({"replica", "node"})
    removes = False

    leave_bytes: Annotated[int, Meta(ge=0, le=1_000_000_000_000)] = 0

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (DiskFill(target, self.leave_bytes) for target in aim.targets)
