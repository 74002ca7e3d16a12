"""`checkpoint.corrupt`: a checkpoint is damaged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Action, Aim, Fault, FaultPoint, Injection, Point


class CheckpointCorrupt(Fault, frozen=True):
    """Damage the file of a checkpoint just after a replica wrote it.

    Why it happens: a full disk, a crash half way, a file system that lost its cache, a flipped bit at rest. Nobody
    notices before the checkpoint is needed, when it is the only one.
    """

    name = "checkpoint.corrupt"
    removes = False

    times: Annotated[int, Meta(ge=1, le=1000)] = 1
    """How many checkpoints."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (FaultPoint(target, Point.IN_CHECKPOINT, Action.CORRUPT, times=self.times) for target in aim.targets)
