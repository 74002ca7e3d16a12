"""`history_kept`: what was committed stays committed."""

from __future__ import annotations

from bisect import bisect_left
from typing import ClassVar

from chaos.api import AnyEvent, Commit, Finding, History, Limits, Monitor, Outcome, Past, Plan, Stretch, counted, events


class HistoryKept(Monitor[Limits]):
    """A committed step is never committed again, and no state falls back behind it.

    A job whose last up-to-date replica is gone begins again from fresh weights and looks healthy in every other way.
    Steps that were paid for are thrown away, and the learning rate and the data no longer fit the weights.
    One thing is allowed: a step that died with the replica that committed it is trained again by those who live.
    """

    name: ClassVar[str] = "history_kept"
    safety: ClassVar[bool] = True
    watches: ClassVar[tuple[type[events.Event], ...]] = (events.Step,)
    ordinary: ClassVar[bool] = False

    def __init__(self, plan: Plan, limits: Limits) -> None:
        super().__init__(plan, limits)
        self._jumps: list[events.Step] = []
        """Commits of a step whose forerunner their member neither committed nor loaded."""

    def observe(self, event: AnyEvent, history: History) -> None:
        assert isinstance(event, events.Step)
        past = history.past
        if not event.committed or event.t_s >= past.drain_s:
            return
        life = past.life_of(event)
        told = life.stretches[-2] if len(life.stretches) > 1 else None
        if told is not None and event.step == told.last + 1 and told.last not in past.steps.contested:
            return
        before = told.end if told is not None else None
        healed = before is not None and bool(life.heals) and life.heals[-1].t_s > before.t_s
        if before is not None and not healed and event.step > before.step + 1:
            self._jumps.append(event)
        if self.broken is None and (earlier := _denied(event, None if healed else before, past)):
            self.broken = self.finding(Outcome.FAIL, _said(event, earlier), evidence=(earlier.seq, event.seq))

    def conclude(self, history: History) -> Finding:
        past = history.past
        back = _falls_back(past)
        measures: dict[str, float | int | str | None] = {
            "steps_committed": len(past.steps),
            "falls_back": len(back),
            "steps_lost": past.top(back[0][0].t_s) - back[0][0].step + 1 if back else 0,
            "jumps": len(self._jumps),
        }
        if back:
            reading = f"{_said(*back[0])} ({counted(len(back), 'such commit')})"
            return self.finding(Outcome.FAIL, reading, measures, [one.seq for pair in back[:3] for one in pair])
        if missing := past.missing(self.plan.replicas()):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        if not past.steps:
            return self.finding(Outcome.UNKNOWN, "no step was committed", measures)
        if self._jumps:
            first = self._jumps[0]
            reading = f"{first.member} committed step {first.step}, and step {first.step - 1} was never told of it"
            return self.finding(Outcome.UNKNOWN, reading, measures, [jump.seq for jump in self._jumps[:3]])
        reading = f"{counted(len(past.steps), 'step')} committed, none of them a second time"
        return self.finding(Outcome.PASS, reading, measures)


def _falls_back(past: Past) -> list[tuple[Commit, Commit]]:
    """Commits of a step that their member, or the group in an earlier quorum, had committed before, with the latter."""
    found = {}
    for member in list(past.lives):
        highest: Stretch | None = None  # The one whose end is the highest step so far.
        for stretch in (one for life in past.lives[member] for one in life.stretches):
            if highest is not None and stretch.begin.step <= highest.last:
                for commit in stretch.own[: highest.last - stretch.begin.step + 1]:
                    kept = past.kept(commit.step)
                    earlier = [c for c in kept if c.member == member and c != commit and c.t_s <= commit.t_s]
                    if earlier or commit.step < highest.last:
                        found[commit.seq] = (commit, earlier[0] if earlier else highest.end)
            if highest is None or stretch.last > highest.last:
                highest = stretch
    for step in past.steps.contested:
        kept = sorted(past.kept(step), key=lambda one: one.t_s)
        for commit in kept:
            if commit.quorum_id != kept[0].quorum_id:
                found.setdefault(commit.seq, (commit, kept[0]))
    return sorted(found.values(), key=lambda pair: pair[0].t_s)


def _denied(event: events.Step, before: Commit | None, past: Past) -> Commit | None:
    """An earlier commit that a commit denies for good. A step that nothing was built on yet may still be undone.

    `before` is the commit that it is built on, None when that is a peer's state or a fresh one.
    """
    if before is not None and event.step > before.step:
        others = [commit for commit in past.steps.commits(before.step) if commit.quorum_id != before.quorum_id]
        return next((commit for commit in others if _built_on(commit, past)), None)
    newest = [life.commits[-1] for life in past.lives[event.member] if life.commits]
    highest = before or max(newest, key=lambda commit: commit.step)
    if before is None and event.step >= highest.step:
        return None
    again = (one for one in past.steps.commits(event.step) if one.member == event.member and one.seq != event.seq)
    return next(again, highest)


def _built_on(commit: Commit, past: Past) -> bool:
    """Whether its member went on from it."""
    for life in past.lives[commit.member]:
        index = bisect_left(life.commits.times_s, commit.t_s)
        if index + 1 < len(life.commits) and life.commits[index] == commit:
            return not life.died_with(commit)
    return False


def _said(again: Commit | events.Step, first: Commit) -> str:
    which = "which" if again.step == first.step else f"after step {first.step}, which"
    return (
        f"the state fell back: {again.member} committed step {again.step} at {again.t_s:.1f} s, {which} "
        f"{first.member} had committed at {first.t_s:.1f} s"
    )
