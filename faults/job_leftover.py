"""`job.leftover`: a job that should be gone still trains."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Fault, Injection, Launch


class JobLeftover(Fault, frozen=True):
    """Start a trainer of another job that asks the same lighthouse for its quorum.

    Why it happens: a run that was not cleaned up, a copied address, two jobs in one namespace. The lighthouse asks
    nobody who they are: the stranger is taken in, is given the weights, and its gradients are part of every update; and
    when somebody ends it at last, the job loses a replica that it never had.
    """

    name = "job.leftover"
    roles = frozenset({"leftover"})
    removes = False

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return map(Launch, aim.targets)
