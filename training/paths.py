"""What the controller makes of who reaches whom: who of a group is to go, so that all others reach each other.

Only a way that was open before counts as cut: where knocks never arrive, because a policy forbids them perhaps, their
failing tells nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

Key = tuple[str, int]
"""A member's life: name and incarnation."""


class Paths:
    """The ways between the members of a job."""

    def __init__(self) -> None:
        self._open: set[frozenset[str]] = set()
        self._cut: set[frozenset[Key]] = set()

    def tried(self, one: Key, others: Iterable[Key], reached: Iterable[bool]) -> None:
        """A member has knocked at others. What was cut is open again once it was reached, from either side."""
        for other, arrived in zip(others, reached, strict=True):
            names, lives = frozenset((one[0], other[0])), frozenset((one, other))
            if arrived:
                self._open.add(names)
                self._cut.discard(lives)
            elif names in self._open:
                self._cut.add(lives)

    def cut_from(self, one: Key, members: Iterable[Key]) -> set[Key]:
        """Those of ``members`` to whom the way is cut."""
        return {other for other in members if frozenset((one, other)) in self._cut}

    def apart(self, members: Iterable[Key]) -> list[Key]:
        """Few of them, without whom no way between the rest is cut: first those to whom most ways are."""
        rest, gone = set(members), []
        while rest:
            cuts, worst = max((len(self.cut_from(one, rest)), one) for one in rest)
            if not cuts:
                break
            rest.remove(worst)
            gone.append(worst)
        return gone

    def forget(self, one: Key) -> None:
        """That life is over."""
        self._cut = {lives for lives in self._cut if one not in lives}
