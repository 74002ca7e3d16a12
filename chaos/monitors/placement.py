"""`placement`: the replicas stay close together in the network."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from chaos.api import AnyEvent, Finding, History, Limits, Monitor, Outcome, Plan, counted, events, listed


class PlacementLimits(Limits, frozen=True):
    """Thresholds of `placement`."""

    level: str = "kubernetes.io/hostname"
    """The label of nodes that names a domain of the network, such as a rack: one of the platform's `levels`."""
    domains_max: Annotated[int, Meta(ge=1)] = 1
    """In how many of them the living replicas may be at once."""


class Placement(Monitor[PlacementLimits]):
    """The living replicas are in one domain of the network's topology, or in no more than they may be.

    Replicas exchange every gradient. One that comes back in another rack or block, because the queue or the scheduler
    forgot the topology over a lost pod or node, makes every step of all the others as slow as the way to it.
    """

    name: ClassVar[str] = "placement"
    safety: ClassVar[bool] = False
    watches = (events.MemberStarted, events.MemberExited)
    limits: ClassVar[type[Limits]] = PlacementLimits

    def __init__(self, plan: Plan, limits: PlacementLimits) -> None:
        super().__init__(plan, limits)
        self._replicas = set(plan.replicas())
        self._where: dict[str, str] = {}
        """Replica that lives -> its domain."""
        self._unknown: set[str] = set()
        self._most: tuple[dict[str, str], events.MemberStarted] | None = None
        """Where they were when they were in the most domains, and the start that made it so."""

    def observe(self, event: AnyEvent, history: History) -> None:
        if event.member not in self._replicas:
            return
        self._where.pop(event.member, None)
        if not isinstance(event, events.MemberStarted):
            return
        domain = event.place.get(self.limit.level)
        if domain is None:
            self._unknown.add(event.member)
            return
        self._where[event.member] = domain
        if self._most is None or _number(self._where) > _number(self._most[0]):
            self._most = dict(self._where), event

    def conclude(self, history: History) -> Finding:
        level = self.limit.level
        if self._most is None or self._unknown:
            who = listed(sorted(self._unknown)) or "any replica"
            return self.finding(Outcome.UNKNOWN, f"the nodes of {who} tell no {level}: is it one of the levels?")
        where, event = self._most
        number = _number(where)
        measures: dict[str, float | int | str | None] = {"domains": number}
        if number > self.limit.domains_max:
            said = ", ".join(f"{member} in {domain}" for member, domain in sorted(where.items()))
            reading = f"from {event.t_s:.1f} s on, {said}: {counted(number, 'domain')} of {level}"
            return self.finding(Outcome.FAIL, f"{reading} (at most {self.limit.domains_max})", measures, [event.seq])
        if missing := history.past.missing(self._replicas):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        return self.finding(Outcome.PASS, f"never more than {counted(number, 'domain')} of {level} at once", measures)


def _number(where: dict[str, str]) -> int:
    return len(set(where.values()))
