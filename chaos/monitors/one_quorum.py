"""`one_quorum`: the job never splits in two."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from math import inf
from typing import ClassVar

from chaos.api import AnyEvent, Commit, Finding, History, Limits, Monitor, Outcome, Past, Plan, counted, events, listed


class OneQuorum(Monitor[Limits]):
    """No two separate groups commit the same step, and no quorum has members that are not of the job.

    Two quorums at once are two trainings that share a name: each averages over its own members only, the weights drift
    apart, and whichever checkpoint is kept has not seen all of the data. A stranger in the quorum trains on data that
    nobody chose, and its gradients are in every weight.
    """

    name: ClassVar[str] = "one_quorum"
    safety: ClassVar[bool] = True
    watches = (events.Step, events.Quorum, events.LighthouseStarted, events.MemberStarted)
    ordinary: ClassVar[bool] = False

    def __init__(self, plan: Plan, limits: Limits) -> None:
        super().__init__(plan, limits)
        self._lighthouse = plan.topology.members("lighthouse") or plan.topology.members("controller")
        self._replicas = frozenset(plan.replicas())
        self._lighthouse_starts_s: list[float] = []
        self._quorums: dict[int, list[events.Quorum]] = defaultdict(list)
        self._own: dict[str, events.Quorum] = {}
        """Member -> the quorum that it told of last."""
        self._overcounted: list[tuple[str, list[int]]] = []
        self._renumbered: dict[str, tuple[events.Quorum, events.Quorum]] = {}
        """Member -> its group, and a newer quorum of other members that has the same id."""
        self._unnoticed: list[tuple[str, list[int]]] = []

    def observe(self, event: AnyEvent, history: History) -> None:
        found: tuple[str, list[int]] | None = None
        match event:
            case events.Step():
                if event.step in history.past.steps.uneven and self.broken is None:
                    found = _split(event.step, history.past)
                own = self._own.get(event.member)
                if own and event.participants > len(own.members or ()) and own.quorum_id == event.quorum_id:
                    found = found or self._overcount(event, own, history.past)
                if event.committed and event.member in self._renumbered:
                    found = found or self._unnoticed_by(event)
            case events.Quorum() if event.members is not None and event.t_s < history.past.drain_s:
                self._quorums[event.quorum_id].append(event)
                found = self._reused(event) or self._joined(event)
                self._compare(event)
            case events.LighthouseStarted():
                insort(self._lighthouse_starts_s, event.t_s)
            case events.MemberStarted() if event.member in self._lighthouse:
                insort(self._lighthouse_starts_s, event.t_s)
            case _:
                pass
        if found and self.broken is None:
            self.broken = self.finding(Outcome.FAIL, found[0], evidence=found[1])

    def conclude(self, history: History) -> Finding:
        past = history.past
        splits = [split for step in sorted(past.steps.uneven) if (split := _split(step, past))]
        quorums = [quorum for same_id in self._quorums.values() for quorum in same_id]
        reused = [one for quorum in quorums if (one := self._reused(quorum))]
        joined = [one for quorum in quorums if (one := self._joined(quorum))]
        measures: dict[str, float | int | str | None] = {
            "steps_checked": len(past.steps),
            "quorums": len(
                {one.begin.quorum_id for lives in past.lives.values() for life in lives for one in life.stretches}
            ),
            "splits": len(splits),
            "reused_ids": len(reused),
        }
        for violations in (splits, reused, joined, self._unnoticed, self._overcounted):
            if violations:
                reading, evidence = violations[0]
                more = f"; {len(violations) - 1} more such" if len(violations) > 1 else ""
                return self.finding(Outcome.FAIL, reading + more, measures, evidence)
        if missing := past.missing(self.plan.replicas()):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        if not past.steps:
            return self.finding(Outcome.UNKNOWN, "no step was committed", measures)
        reading = f"each of {counted(len(past.steps), 'step')} was committed by one quorum"
        return self.finding(Outcome.PASS, reading, measures)

    def _reused(self, quorum: events.Quorum) -> tuple[str, list[int]] | None:
        """Whether one lighthouse had given the id of a quorum to another group. A restarted one counts anew."""
        known = next(one for one in self._quorums[quorum.quorum_id] if self._era(one) == self._era(quorum))
        before, after = known.members or (), quorum.members or ()
        if before == after or set(before) == set(after):
            return None
        return f"quorum {quorum.quorum_id} was {listed(before)}, then {listed(after)}", [known.seq, quorum.seq]

    def _joined(self, quorum: events.Quorum) -> tuple[str, list[int]] | None:
        """Whether somebody else is in a quorum, or the member that tells of it is not."""
        members = set(quorum.members or ())
        if strangers := sorted(members - self._replicas):
            return f"quorum {quorum.quorum_id} took in {listed(strangers)}, which is not of this job", [quorum.seq]
        if quorum.member in members:
            return None
        return f"{quorum.member} is in quorum {quorum.quorum_id}, which is {listed(sorted(members))}", [quorum.seq]

    def _compare(self, quorum: events.Quorum) -> None:
        """Whether the group of a member changed under the id it had."""
        own = self._own.get(quorum.member)
        self._own[quorum.member] = quorum
        same_id = own is not None and (own.incarnation, own.quorum_id) == (quorum.incarnation, quorum.quorum_id)
        if own is not None and same_id and set(own.members or ()) != set(quorum.members or ()):
            self._renumbered[quorum.member] = own, quorum
        elif not same_id:
            self._renumbered.pop(quorum.member, None)

    def _unnoticed_by(self, step: events.Step) -> tuple[str, list[int]] | None:
        """A commit in a group that changed under its id: TorchFT builds a new one for a new id only, so its member may
        have stayed. It has not where the exchange had as many contributors as the new quorum says.
        """
        own, quorum = self._renumbered.pop(step.member)
        if step.gradient_scale == 1.0 or step.quorum_id != quorum.quorum_id:
            return None
        found = (
            f"{step.member} was in the group of quorum {own.quorum_id}, {listed(sorted(own.members or ()))}, and "
            f"stayed there when a new quorum, which is {listed(sorted(quorum.members or ()))}, had the same id: "
            f"nothing says that those exchanged the gradients of step {step.step}",
            [own.seq, quorum.seq, step.seq],
        )
        self._unnoticed.append(found)
        return found

    def _overcount(self, step: events.Step, quorum: events.Quorum, past: Past) -> tuple[str, list[int]] | None:
        """A commit for which the gradients were divided by more than the quorum has members."""
        if not step.committed or step.t_s >= past.drain_s:
            return None
        found = (
            f"{step.member} committed step {step.step} as one of {counted(step.participants, 'participant')} "
            f"of quorum {quorum.quorum_id}, which is {listed(quorum.members or ())}",
            [quorum.seq, step.seq],
        )
        self._overcounted.append(found)
        return found

    def _era(self, quorum: events.Quorum) -> int:
        return bisect_right(self._lighthouse_starts_s, quorum.t_s)


def _split(step: int, past: Past) -> tuple[str, list[int]] | None:
    """How a step was committed by more than one group, with its evidence; None when it was not."""
    groups: dict[int, dict[str, Commit]] = defaultdict(dict)
    for commit in past.kept(step):
        groups[commit.quorum_id][commit.member] = commit
    evidence = [commit.seq for group in groups.values() for commit in group.values()]
    if len(groups) > 1:
        parts = [f"{listed(sorted(group))} in quorum {quorum_id}" for quorum_id, group in groups.items()]
        return f"step {step} was committed by {listed(parts)}", evidence
    for quorum_id, group in groups.items():
        # A healing replica commits with the others and is not counted among the participants.
        full = [commit for commit in group.values() if not commit.healing]
        allowed = min((commit.participants for commit in full), default=inf)
        if len(full) > allowed:
            said = f"{listed(sorted(group))} committed step {step} in quorum {quorum_id}, which had "
            return said + counted(int(allowed), "participant"), evidence
    return None
