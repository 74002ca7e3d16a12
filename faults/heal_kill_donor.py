"""`heal.kill_donor`: the replica that gives its state away is lost."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Delete, Fault, Injection


class HealKillDonor(Fault, frozen=True):
    """End the pod of the donor of a heal at once; best at the point `in_serve`, while its state is being fetched.

    Why it happens: whoever serves a heal works harder than the others, and a second failure during the repair of the
    first is the one that redundancy was not made for. The healing replica must find another donor and not start from
    half a state.
    """

    name = "heal.kill_donor"
    roles = frozenset({"donor"})

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return map(Delete, aim.targets)
