"""`heal.stall_donor`: the replica that gives its state away hangs."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Action, Aim, Fault, FaultPoint, Injection, Point


class HealStallDonor(Fault, frozen=True):
    """Let the donor of a heal stand still while its state is being fetched, until the fault ends.

    Why it happens: a saturated link, a donor that swaps, a transfer stuck in a lock. The donor still beats, so the
    healing replica and everyone in its quorum wait for as long as the transfer may take.
    """

    name = "heal.stall_donor"
    roles = frozenset({"donor"})

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (FaultPoint(target, Point.IN_SERVE, Action.PAUSE) for target in aim.targets)
