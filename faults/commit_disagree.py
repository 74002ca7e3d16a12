"""`commit.disagree`: one replica decides otherwise than its peers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Action, Aim, Fault, FaultPoint, Injection, Point


class CommitDisagree(Fault, frozen=True):
    """Turn the vote of a replica on whether to commit a step into its opposite.

    Why it happens: an error that only one side of an exchange has seen, a check that is not deterministic. One replica
    commits and its peers do not, or the other way round; the one that is behind has to heal, and no state may be
    mixed.
    """

    name = "commit.disagree"
    removes = False

    times: Annotated[int, Meta(ge=1, le=1000)] = 1
    """In how many steps."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (FaultPoint(target, Point.BEFORE_COMMIT, Action.LIE, times=self.times) for target in aim.targets)
