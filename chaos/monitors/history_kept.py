"""`history_kept`: what was committed stays committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from chaos.api import AnyEvent, Commit, Finding, History, Limits, Monitor, Outcome, Past, Plan, counted, events


@dataclass
class _Thread:
    """One trainer's life: the step it committed last, in which quorum, and whether it loaded a peer's state since.

    `floor` is the highest step that earlier lives of the member had committed when it began.
    """

    floor: int
    step: int = 0
    quorum_id: int = -1
    healed: bool = False


class HistoryKept(Monitor[Limits]):
    """A committed step is never committed again, and no state falls back behind it.

    A job whose last up-to-date replica is gone begins again from fresh weights and looks healthy in every other way.
    Steps that were paid for are thrown away, and the learning rate and the data no longer fit the weights.
    One thing is allowed: a step that died with the replica that committed it is trained again by those who live.
    """

    name: ClassVar[str] = "history_kept"
    safety: ClassVar[bool] = True
    watches: ClassVar[tuple[type[events.Event], ...]] = (events.TrainerStarted, events.HealEnded, events.Step)

    def __init__(self, plan: Plan, limits: Limits) -> None:
        super().__init__(plan, limits)
        self._threads: dict[tuple[str, int], _Thread] = {}
        self._highest: dict[str, int] = {}
        self._built_on: dict[int, int] = {}
        """Step -> the quorum whose commit of it a later step was built on."""
        self._jumps: list[events.Step] = []
        """Commits of a step whose forerunner their member neither committed nor loaded."""

    def observe(self, event: AnyEvent, history: History) -> None:
        if event.t_s >= history.past.drain_s:
            return
        match event:
            case events.TrainerStarted():
                self._threads.pop((event.member, event.incarnation), None)
            case events.HealEnded():
                self._thread(event).healed = True
            case events.Step(committed=True):
                thread = self._thread(event)
                earlier = self._contradicted(thread, event, history.past) if self.broken is None else None
                if earlier is not None:
                    self.broken = self.finding(Outcome.FAIL, _said(event, earlier), evidence=(earlier.seq, event.seq))
                if thread.step and not thread.healed and event.step > thread.step + 1:
                    self._jumps.append(event)
                thread.step, thread.quorum_id, thread.healed = event.step, event.quorum_id, False
                self._highest[event.member] = max(event.step, self._highest.get(event.member, 0))
            case _:
                pass

    def _thread(self, event: AnyEvent) -> _Thread:
        key = (event.member, event.incarnation)
        if key not in self._threads:
            self._threads[key] = _Thread(self._highest.get(event.member, 0))
        return self._threads[key]

    def _contradicted(self, thread: _Thread, event: events.Step, past: Past) -> Commit | None:
        """An earlier commit that this one denies for good. A step that nothing was built on yet may still be undone."""
        if event.step < thread.floor or (event.step <= thread.step and not thread.healed):
            return _earlier(event, past)
        if not thread.step or thread.healed:
            return None
        known = self._built_on.setdefault(thread.step, thread.quorum_id)
        if known == thread.quorum_id:
            return None
        return next(commit for commit in past.commits[thread.step] if commit.quorum_id == known)

    def conclude(self, history: History) -> Finding:
        past = history.past
        back = _falls_back(past)
        measures: dict[str, float | int | str | None] = {
            "steps_committed": len(past.commits),
            "falls_back": len(back),
            "steps_lost": _height(back[0][0], past) - back[0][0].step + 1 if back else 0,
            "jumps": len(self._jumps),
        }
        if back:
            reading = f"{_said(*back[0])} ({counted(len(back), 'such commit')})"
            return self.finding(Outcome.FAIL, reading, measures, [one.seq for pair in back[:3] for one in pair])
        if missing := past.missing(self.plan.replicas()):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        if not past.commits:
            return self.finding(Outcome.UNKNOWN, "no step was committed", measures)
        if self._jumps:
            first = self._jumps[0]
            reading = f"{first.member} committed step {first.step}, and step {first.step - 1} was never told of it"
            return self.finding(Outcome.UNKNOWN, reading, measures, [jump.seq for jump in self._jumps[:3]])
        reading = f"{counted(len(past.commits), 'step')} committed, none of them a second time"
        return self.finding(Outcome.PASS, reading, measures)


def _falls_back(past: Past) -> list[tuple[Commit, Commit]]:
    """Commits of a step that their member, or the group in an earlier quorum, had committed before, with the latter."""
    found = {}
    for member in list(past.lives):
        highest: Commit | None = None
        for commit in past.member_commits(member):
            if highest is not None and commit.step <= highest.step:
                kept = past.kept(commit.step)
                earlier = [c for c in kept if c.member == member and c is not commit and c.t_s <= commit.t_s]
                if earlier or commit.step < highest.step:
                    found[commit.seq] = (commit, earlier[0] if earlier else highest)
            if highest is None or commit.step > highest.step:
                highest = commit
    for step in past.contested:
        kept = sorted(past.kept(step), key=lambda one: one.t_s)
        for commit in kept:
            if commit.quorum_id != kept[0].quorum_id:
                found.setdefault(commit.seq, (commit, kept[0]))
    return sorted(found.values(), key=lambda pair: pair[0].t_s)


def _earlier(event: events.Step, past: Past) -> Commit:
    """The commit that a member denies by falling back: its own of this step, or the newest of a higher one."""
    own = [commit for commit in past.member_commits(event.member) if commit.seq != event.seq]
    same = next((commit for commit in own if commit.step == event.step), None)
    return same or max(own, key=lambda commit: commit.step)


def _height(commit: Commit, past: Past) -> int:
    """The highest step that was committed before a commit."""
    return max(past.timeline(member).top(commit.t_s) for member in list(past.lives))


def _said(again: Commit | events.Step, first: Commit) -> str:
    which = "which" if again.step == first.step else f"after step {first.step}, which"
    return (
        f"the state fell back: {again.member} committed step {again.step} at {again.t_s:.1f} s, {which} "
        f"{first.member} had committed at {first.t_s:.1f} s"
    )
