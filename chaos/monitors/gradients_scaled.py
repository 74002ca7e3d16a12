"""`gradients_scaled`: every update is the mean over those who contributed, no more and no less."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from chaos.api import AnyEvent, Commit, Finding, History, Life, Limits, Monitor, Outcome, Past, Plan, counted, events

_APART_S = 1.0
"""Clocks of nodes that differ by less may be taken for right."""


class GradientsScaledLimits(Limits, frozen=True):
    """Thresholds of `gradients_scaled`."""

    scale_error_max: Annotated[float, Meta(gt=0)] = 1e-3
    """How far from 1 an exchanged 1 of each contributor may come back: more than the rounding of any number format
    that gradients are exchanged in, less than one replica too many among 64, which is 1/64."""


Wrong = tuple[str, tuple[int, ...]]
"""What does not fit, in words and journal positions."""


class GradientsScaled(Monitor[GradientsScaledLimits]):
    """At each committed step the sum of gradients was divided by the number of replicas that contributed.

    A wrong divisor is a wrong learning rate that nobody set: a replica that goes on in a group of three with divisor 1
    takes steps three times too long, and replicas that are counted but still receive their first state make the first
    update of all too short. Nothing fails, and when all replicas err alike their states stay equal.

    Judged by `gradient_scale`, and by `participants` against those who reported the step.
    """

    name: ClassVar[str] = "gradients_scaled"
    safety: ClassVar[bool] = True
    watches: ClassVar[tuple[type[events.Event], ...]] = (events.Step,)
    ordinary: ClassVar[bool] = False
    limits: ClassVar[type[Limits]] = GradientsScaledLimits

    def __init__(self, plan: Plan, limits: GradientsScaledLimits) -> None:
        super().__init__(plan, limits)
        self._untold = self._unmeasured = 0
        """Commits that told no scale; those of them whose members had contributed."""
        self._worst_scale = 1.0
        self._off: dict[int, Wrong] = {}
        """Step -> its first commit whose scale is off."""

    def observe(self, event: AnyEvent, history: History) -> None:
        assert isinstance(event, events.Step)
        past, scale = history.past, event.gradient_scale
        if not event.committed or event.t_s >= past.drain_s:
            return
        if scale is None:
            self._untold += 1
            self._unmeasured += not event.healing
        else:
            if abs(scale - 1) > abs(self._worst_scale - 1):
                self._worst_scale = scale
            if abs(scale - 1) > self.limit.scale_error_max:
                self._off.setdefault(event.step, (_said_off(event, scale), (event.seq,)))
        if self.broken is not None or not (self._off or event.step in past.steps.uneven):
            return
        if wrong := self._off.get(event.step) or _misfit(event.step, past):
            self.broken = self.finding(Outcome.FAIL, wrong[0], evidence=wrong[1])

    def conclude(self, history: History) -> Finding:
        past = history.past
        missing = past.missing(self.plan.replicas())
        wrong = {} if missing else dict(_overcounted(past))
        wrong |= {step: misfit for step in past.steps.uneven if (misfit := _misfit(step, past))} | self._off
        measured = sum(tally.commits for tally in past.steps.tallies.values()) - self._untold
        measures: dict[str, float | int | str | None] = {
            "steps_checked": len(past.steps),
            "steps_wrong": len(wrong),
            "scales_measured": measured,
            "worst_scale": self._worst_scale if measured else None,
        }
        if wrong:
            reading, evidence = wrong[min(wrong)]
            more = f"; {len(wrong) - 1} more such" if len(wrong) > 1 else ""
            return self.finding(Outcome.FAIL, reading + more, measures, evidence)
        if missing:
            return self.finding(Outcome.UNKNOWN, missing, measures)
        if not past.steps:
            return self.finding(Outcome.UNKNOWN, "no step was committed", measures)
        if self._unmeasured:
            reading = f"{counted(self._unmeasured, 'commit')} told of no scale"
            return self.finding(Outcome.UNKNOWN, reading, measures)
        steps = counted(len(past.steps), "step")
        reading = f"the gradients of {steps} were divided by the number of their contributors"
        return self.finding(Outcome.PASS, reading, measures)


def _said_off(event: events.Step, scale: float) -> str:
    among = counted(event.participants, "participant")
    of = f"step {event.step} in quorum {event.quorum_id}"
    return f"{event.member} committed {of} with gradients scaled by {scale:.4g} ({among})"


def _misfit(step: int, past: Past) -> Wrong | None:
    """Replicas of one exchange that divided by different numbers, or by fewer than they were."""
    for quorum_id, group in _exchanges(step, past).items():
        of, first = f"step {step} in quorum {quorum_id}", group[0]
        for commit in group:
            if commit.participants != first.participants:
                said = f"{first.member} divided {of} by {first.participants}, {commit.member} by {commit.participants}"
                return said, (first.seq, commit.seq)
        contributors = {commit.member for commit in group if not commit.healing}
        if len(contributors) > first.participants:
            said = f"{counted(len(contributors), 'replica')} contributed to {of}, divided by {first.participants}"
            return said, tuple(commit.seq for commit in group)
    return None


def _overcounted(past: Past) -> Iterator[tuple[int, Wrong]]:
    """Steps that were divided by more replicas than can have contributed.

    A replica that died or was stopped or cut off before it could say so may have contributed, and so may one whose own
    commit failed, or whose clock is so far ahead that it said so in drain.
    """
    unheard = _Unheard(past)
    tried_in_vain: dict[tuple[int, int], set[str]] = defaultdict(set)
    for discard in (one for lives in past.lives.values() for life in lives for one in life.discards):
        tried_in_vain[discard.step, discard.quorum_id].add(discard.member)
    for step, tally in past.steps.tallies.items():
        contributors = tally.commits - (sum(one.healing for one in tally.others) if tally.others else 0)
        if contributors >= tally.participants and step not in past.steps.contested:
            continue
        for quorum_id, group in _exchanges(step, past).items():
            there = {commit.member for commit in group if not commit.healing} | tried_in_vain[step, quorum_id]
            most, divided_by = len(there) + unheard.of(step), group[0].participants
            if divided_by > most:
                said = f"step {step} in quorum {quorum_id} was divided by {divided_by}, and {most} contributed at most"
                yield step, (said, (group[0].seq,))


def _exchanges(step: int, past: Past) -> dict[int, list[Commit]]:
    """The commits of a step, by quorum."""
    groups: dict[int, list[Commit]] = defaultdict(list)
    for commit in past.steps.commits(step):
        groups[commit.quorum_id].append(commit)
    return groups


class _Unheard:
    """The steps that lives may have tried without a word that counts."""

    def __init__(self, past: Past) -> None:
        self._single: Counter[int] = Counter()
        self._in_drain: list[int] = []
        """The steps from which on lives may have told of all in drain."""
        for life in (one for lives in past.lives.values() for one in lives):
            last = _next_try(life)
            before = (bisect_left(life.commits.times_s, heal.t_s) for heal in life.heals)
            steps = {last, *(life.commits[index - 1].step + 1 for index in before if index)}
            if life.commits and life.commits.times_s[-1] > past.drain_s - _APART_S:
                self._in_drain.append(last)
                steps = {step for step in steps if step < last}
            self._single.update(steps)
        self._in_drain.sort()

    def of(self, step: int) -> int:
        """How many lives may have tried a step: as their last one, before they took a peer's state, or in drain."""
        return self._single[step] + bisect_right(self._in_drain, step)


def _next_try(life: Life) -> int:
    """The step that a life was about to try when it was last heard of; 0 when it had no quorum."""
    words = [(commit.t_s, commit.step + 1) for commit in life.commits[-1:]]
    words += [(discard.t_s, discard.step) for discard in life.discards[-1:]]
    words += [(quorum.t_s, quorum.max_step + 1) for quorum in life.quorums[-1:]]
    return max(words, default=(0.0, 0))[1]
