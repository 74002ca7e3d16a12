"""`same_state`: all replicas hold the same parameters and optimizer state."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from chaos.api import (
    AnyEvent,
    Commit,
    Finding,
    History,
    Limits,
    Monitor,
    Outcome,
    Past,
    Plan,
    Tally,
    counted,
    events,
    listed,
)


class SameState(Monitor[Limits]):
    """At each committed step all digests of parameters and optimizer state are equal, whoever reported them.

    Replicas that differ train different models and average their gradients as if they were one. Nothing crashes and
    nothing is logged; the loss curve bends, much later. Equal digests after a heal prove that it was a whole one.
    """

    name: ClassVar[str] = "same_state"
    safety: ClassVar[bool] = True
    watches = (events.HealEnded, events.Step)
    ordinary: ClassVar[bool] = False

    def __init__(self, plan: Plan, limits: Limits) -> None:
        super().__init__(plan, limits)
        self._heals: list[events.HealEnded] = []

    def observe(self, event: AnyEvent, history: History) -> None:
        past = history.past
        if isinstance(event, events.Step):
            if event.step in past.steps.uneven:
                self._observe_step(event.step, past)
        elif isinstance(event, events.HealEnded) and event.t_s < past.drain_s:
            self._heals.append(event)
            if self.broken is None and (donor := _against_donor(event, past)):
                self.broken = self.finding(Outcome.FAIL, _said_of_heal(event, donor), evidence=[event.seq, donor.seq])

    def _observe_step(self, step: int, past: Past) -> None:
        if self.broken is None and _differ(digests := _digests(step, past)):
            self.broken = self.finding(Outcome.FAIL, _said(digests), evidence=_seqs(digests))

    def conclude(self, history: History) -> Finding:
        past = history.past
        compared = sum(_is_compared(tally, past) for tally in past.steps.tallies.values())
        uneven = (_digests(step, past) for step in sorted(past.steps.uneven))
        mismatches = [digests for digests in uneven if _differ(digests)]
        bad_heals = [(heal, donor) for heal in self._heals if (donor := _against_donor(heal, past))]
        measures: dict[str, float | int | str | None] = {
            "steps_compared": compared,
            "mismatches": len(mismatches),
            "bad_heals": len(bad_heals),
        }
        if mismatches:
            count = f"{len(mismatches)} of {counted(compared, 'compared step')}"
            reading = f"{_said(mismatches[0])}; digests differ at {count}"
            return self.finding(Outcome.FAIL, reading, measures, _seqs(mismatches[0]))
        if bad_heals:
            heal, donor = bad_heals[0]
            return self.finding(Outcome.FAIL, _said_of_heal(heal, donor), measures, (heal.seq, donor.seq))
        if not compared:
            reading = "no step has digests of two replicas: nothing could be compared"
            return self.finding(Outcome.UNKNOWN, reading, measures)
        if unproven := self._never_compared(past):
            reading = f"no digest of {listed(unproven)} could be compared since it was hit"
            return self.finding(Outcome.UNKNOWN, reading, measures)
        if missing := past.missing(self.plan.replicas()):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        reading = f"the state was the same everywhere at each of {counted(compared, 'compared step')}"
        return self.finding(Outcome.PASS, reading, measures)

    def _never_compared(self, past: Past) -> list[str]:
        """Replicas that were hit, and of which nothing since is in a comparison."""
        newest = {hit.member: hit for hit in past.hits if hit.member in self.plan.replicas()}
        return [
            member
            for member, hit in sorted(newest.items())
            if not any(_compared(commit, past) for _, commit in past.commits_after(hit))
        ]


def _digests(step: int, past: Past) -> list[Commit]:
    return [commit for commit in past.kept(step) if commit.digest is not None]


def _is_compared(tally: Tally, past: Past) -> bool:
    """Whether two replicas told a digest of a step."""
    if not tally.others:  # As of most steps.
        return tally.digest is not None and tally.commits > 1
    return _comparable(_digests(tally.step, past))


def _compared(commit: Commit, past: Past) -> bool:
    digests = _digests(commit.step, past)
    return commit in digests and _comparable(digests)


def _comparable(digests: list[Commit]) -> bool:
    return len({commit.member for commit in digests}) > 1


def _differ(digests: list[Commit]) -> bool:
    return _comparable(digests) and len({commit.digest for commit in digests}) > 1


def _said(digests: list[Commit]) -> str:
    """Who differs: the minority, when there is one."""
    counts = Counter(commit.digest for commit in digests)
    common, _ = counts.most_common(1)[0]
    odd = sorted({commit.member for commit in digests if commit.digest != common})
    others = sorted({commit.member for commit in digests if commit.digest == common})
    return f"after step {digests[0].step} the state of {listed(odd)} is not that of {listed(others)}"


def _seqs(digests: list[Commit]) -> list[int]:
    return [commit.seq for commit in digests]


def _said_of_heal(heal: events.HealEnded, donor: Commit) -> str:
    return f"{heal.member} loaded another state of step {heal.step} than {donor.member} holds"


def _against_donor(heal: events.HealEnded, past: Past) -> Commit | None:
    """The report of the donor, or when that is not named of any peer, that a loaded state differs from."""
    peers = [commit for commit in _digests(heal.step, past) if commit.member != heal.member]
    donors = [commit for commit in peers if commit.member == heal.source] or peers
    if heal.digest is None or not donors or any(commit.digest == heal.digest for commit in donors):
        return None
    return donors[0]
