"""`no_collateral`: a fault kills nobody but its victims."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import inf
from typing import ClassVar, get_args

from chaos.api import AnyEvent, Finding, History, Limits, Monitor, Outcome, Past, Plan, counted, events, listed, span

Death = events.MemberExited | events.TrainerFailed | events.MemberStarted | events.TrainerStarted


class NoCollateral(Monitor[Limits]):
    """Members that no fault was to take away keep their incarnation and their trainer, from the baseline until drain.

    What comes up may need a second attempt, and every replica has to train in the baseline anyway.
    Those that a fault was aimed at which removes nobody are among them: a slow replica must not be lost. So are those
    that came back from a fault: once they have committed again, nothing excuses a second death.
    Where a fault cuts two sides apart the job may give up either, but no more of them than were aimed at.

    One lost replica that takes others with it is the difference between a hiccup and an outage: the job loses its
    quorum, or every replica, and with the last one all that was trained since the last checkpoint.
    """

    name: ClassVar[str] = "no_collateral"
    safety: ClassVar[bool] = True
    watches = (events.FaultStarted, *get_args(Death))

    def __init__(self, plan: Plan, limits: Limits) -> None:
        super().__init__(plan, limits)
        self._members = set(plan.members())
        self._deaths: list[Death] = []
        self._aimed: dict[str, list[events.FaultStarted]] = defaultdict(list)
        """Member -> the faults that were aimed at it and may take it away."""

    def observe(self, event: AnyEvent, history: History) -> None:
        if isinstance(event, events.FaultStarted) and event.removes:
            for member in history.past.aimed[event.fault_id]:
                self._aimed[member].append(event)
        if not isinstance(event, Death) or event.member not in self._members:
            return
        begins = isinstance(event, events.MemberStarted | events.TrainerStarted)
        if begins and len(history.past.lives[event.member]) < 2:
            return
        self._deaths.append(event)
        if self.broken is None and self._is_collateral(event, history.past):
            self.broken = self.finding(Outcome.FAIL, _said(event, history.past), evidence=[event.seq])

    def conclude(self, history: History) -> Finding:
        past = history.past
        deaths = [death for death in self._deaths if self._is_collateral(death, past)]
        by_member = {death.member: death for death in sorted(deaths, key=_telling)}
        spared = self._members - set(self._aimed)
        exits = Counter(type(death) for death in deaths)[events.MemberExited]
        measures: dict[str, float | int | str | None] = {
            "members_not_hit": len(spared),
            "members_lost": len(by_member),
            "exits": exits,
        }
        if by_member:
            first, *others = sorted(by_member.values(), key=lambda death: death.t_s)
            reading = _said(first, past)
            if others:
                reading += f"; so did {listed(death.member for death in others)}"
            return self.finding(Outcome.FAIL, reading, measures, sorted(death.seq for death in deaths))
        if missing := past.missing(self._members):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        if unseen := sorted(member for member in spared if not past.lives.get(member)):
            return self.finding(Outcome.UNKNOWN, f"nothing was ever seen of {listed(unseen)}", measures)
        reading = f"{counted(len(spared), 'member')} that no fault was to take away lived on"
        return self.finding(Outcome.PASS, reading, measures)

    def _is_collateral(self, death: Death, past: Past) -> bool:
        """Nobody is to blame while the job comes up or ends, or for a member that a fault is taking away."""
        if not past.baseline_s <= death.t_s < min(past.drain_s, past.finished_s):
            return False
        # The newest fault is the likeliest excuse, and to look for the way back from an older one costs more.
        aimed = reversed(self._aimed.get(death.member, ()))
        if any(one.t_s <= death.t_s <= _back_s(one, death.member, past) for one in aimed):
            return False
        hits = (hit for hit in past.hits if hit.member == death.member and hit.removes)
        return not any(hit.t_s <= death.t_s <= past.back_s(hit) for hit in hits)


def _back_s(started: events.FaultStarted, member: str, past: Past) -> float:
    """When a member was back from a fault that was aimed at it: never when it was not, or was not hit yet; and it never
    was away when others were ended instead.
    """
    hits = (hit for hit in past.hits_by(started.fault_id) if hit.member == member)
    return next((past.back_s(hit) if hit.removes else -inf for hit in hits), inf)


def _telling(death: Death) -> int:
    """Of several signs of one death the most telling one comes last."""
    order = (events.TrainerStarted, events.MemberStarted, events.MemberExited, events.TrainerFailed)
    return order.index(type(death))


def _said(death: Death, past: Past) -> str:
    match death:
        case events.TrainerFailed(error=error):
            how = f"failed ({error})"
        case events.MemberExited(status=status):
            how = f"was ended by signal {-status}" if status < 0 else f"exited with status {status}"
        case _:
            how = "was started again"
    earlier = [hit for hit in past.in_force if hit.t_s <= death.t_s]
    if not earlier:
        return f"{death.member} {how} at {death.t_s:.1f} s, before any fault was in force"
    after_s = death.t_s - earlier[-1].t_s
    return f"{death.member} {how} {span(after_s)} s after {earlier[-1].proof.member} was hit"
