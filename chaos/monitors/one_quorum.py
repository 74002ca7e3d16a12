"""`one_quorum`: the job never splits in two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import inf
from typing import ClassVar

from chaos.api import AnyEvent, Commit, Finding, History, Limits, Monitor, Outcome, Past, Plan, counted, events, listed


class OneQuorum(Monitor[Limits]):
    """No two separate groups commit the same step.

    Two quorums at once are two trainings that share a name: each averages over its own members only, the weights drift
    apart, and whichever checkpoint is kept has not seen all of the data.
    """

    name: ClassVar[str] = "one_quorum"
    safety: ClassVar[bool] = True

    def __init__(self, plan: Plan, limits: Limits) -> None:
        super().__init__(plan, limits)
        self._lighthouse = plan.topology.members("lighthouse") or plan.topology.members("controller")
        self._lighthouse_starts_s: list[float] = []
        self._quorums: dict[int, list[events.Quorum]] = defaultdict(list)
        self._uneven: set[int] = set()
        """Steps of which not all reports say the same, or which more replicas report than take part."""

    def observe(self, event: AnyEvent, history: History) -> None:
        found: tuple[str, list[int]] | None = None
        match event:
            case events.Step(committed=True) if event.t_s < history.past.drain_s:
                found = self._torn(event, history.past)
            case events.Quorum() if event.members is not None and event.t_s < history.past.drain_s:
                self._quorums[event.quorum_id].append(event)
                found = next(self._reused(self._quorums[event.quorum_id]), None) if self.broken is None else None
            case events.LighthouseStarted():
                self._lighthouse_starts_s.append(event.t_s)
            case events.MemberStarted() if event.member in self._lighthouse:
                self._lighthouse_starts_s.append(event.t_s)
            case _:
                pass
        if found and self.broken is None:
            self.broken = self.finding(Outcome.FAIL, found[0], evidence=found[1])

    def conclude(self, history: History) -> Finding:
        past = history.past
        splits = [split for step in sorted(self._uneven) if (split := _split(step, past))]
        reused = [one for quorums in self._quorums.values() for one in self._reused(quorums)]
        measures: dict[str, float | int | str | None] = {
            "steps_checked": len(past.commits),
            "quorums": len({commit.quorum_id for commits in past.commits.values() for commit in commits}),
            "splits": len(splits),
            "reused_ids": len(reused),
        }
        for violations in (splits, reused):
            if violations:
                reading, evidence = violations[0]
                more = f"; {len(violations) - 1} more such" if len(violations) > 1 else ""
                return self.finding(Outcome.FAIL, reading + more, measures, evidence)
        if missing := past.missing(self.plan.replicas()):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        if not past.commits:
            return self.finding(Outcome.UNKNOWN, "no step was committed", measures)
        reading = f"each of {counted(len(past.commits), 'step')} was committed by one quorum"
        return self.finding(Outcome.PASS, reading, measures)

    def _torn(self, event: events.Step, past: Past) -> tuple[str, list[int]] | None:
        """Whether the step is split with this commit. Most are not, and that is seen at a glance."""
        commits = past.commits[event.step]
        same = (event.quorum_id, event.participants) == (commits[0].quorum_id, commits[0].participants)
        if not same or len(commits) > event.participants:
            self._uneven.add(event.step)
        return _split(event.step, past) if event.step in self._uneven and self.broken is None else None

    def _reused(self, quorums: list[events.Quorum]) -> Iterator[tuple[str, list[int]]]:
        """Where one lighthouse gave the id of these quorums to different groups. A restarted one counts anew."""
        first: dict[int, events.Quorum] = {}
        for quorum in quorums:
            era = sum(start_s <= quorum.t_s for start_s in self._lighthouse_starts_s)
            known = first.setdefault(era, quorum)
            before, after = known.members or (), quorum.members or ()
            if set(before) != set(after):
                said = f"quorum {quorum.quorum_id} was {listed(before)}, then {listed(after)}"
                yield said, [known.seq, quorum.seq]


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
