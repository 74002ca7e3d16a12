"""`allreduce.error`: an exchange of gradients fails in one replica."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Action, Aim, Fault, FaultPoint, Injection, Point


class AllreduceError(Fault, frozen=True):
    """Let the gradient exchange of a replica fail, as the library below would.

    Why it happens: a transient error of the fabric, a timeout in one rank, an aborted communicator. The step must not
    be committed where it failed; a job that tries the same again for ever without a word is as dead as one that
    crashed.
    """

    name = "allreduce.error"
    removes = False

    times: Annotated[int, Meta(ge=1, le=1000)] = 1
    """In how many steps."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (FaultPoint(target, Point.IN_ALLREDUCE, Action.ERROR, times=self.times) for target in aim.targets)
