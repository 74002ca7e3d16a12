"""`dataloader.stall`: one replica gets no data."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Action, Aim, Fault, FaultPoint, Injection, Point


class DataloaderStall(Fault, frozen=True):
    """Let the data loader of a replica stand still, until the fault ends.

    Why it happens: a storage server that does not answer, a worker process that deadlocked, a queue that ran dry. The
    replica waits for its batch and beats on, the others wait for its gradients.
    """

    name = "dataloader.stall"

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (FaultPoint(target, Point.IN_DATALOAD, Action.PAUSE) for target in aim.targets)
