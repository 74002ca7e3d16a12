"""`participation`: who is alive also takes part."""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar

from msgspec import Meta

from chaos.api import (
    Commit,
    Finding,
    History,
    Life,
    Limits,
    Monitor,
    Outcome,
    Past,
    Stretch,
    Tally,
    counted,
    events,
    span,
)

Mark = events.Event | Commit


class ParticipationLimits(Limits, frozen=True):
    """Thresholds of `participation`."""

    idle_steps_max: Annotated[int, Meta(gt=0)] = 100
    """Steps that others commit while a replica's trainer is up, under no fault, and commits none. One that comes back
    needs a few; a hundred is no longer on its way."""
    share_min: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Least share of all replica-steps that must be trained. None, since it is the experiment's faults and length that
    make it: one lost replica of three, away for half of a short run, is a share of 83 %."""


@dataclass
class _Presence:
    """One replica's time from the job's first commit on, in seconds, and how many steps it contributed to.

    It participates between two commits that follow on each other, however long that takes; else it was away, but for
    the time of its heals. `alive_s` is the time of its lives, whatever they did.
    """

    member: str
    steps: int = 0
    alive_s: float = 0.0
    participating_s: float = 0.0
    healing_s: float = 0.0
    away_s: float = 0.0

    def miss(self, heals: _Heals, since_s: float, until_s: float) -> None:
        """It did not take part in a stretch of time."""
        healing_s = heals.within_s(since_s, until_s)
        self.healing_s += healing_s
        self.away_s += until_s - since_s - healing_s

    def measures(self) -> dict[str, float | int | str | None]:
        parts = {"alive_s": self.alive_s, "participating_s": self.participating_s, "healing_s": self.healing_s}
        parts |= {"away_s": self.away_s, "steps": self.steps}
        return {f"{self.member}.{name}": value for name, value in parts.items()}


@dataclass(frozen=True)
class _Idle:
    """A stretch of time in which a trainer was up and committed nothing, and the steps that others committed in it."""

    member: str
    after_step: int
    steps: int
    evidence: tuple[int, ...]


class Participation(Monitor[ParticipationLimits]):
    """A replica whose trainer is up takes part: never do others commit more than `idle_steps_max` steps without it.

    A replica can be alive, heartbeat and hold its machines while the others train on without it: a heal that fails at
    every step, a name that no peer resolves, a quorum that never takes it in. Nothing restarts it, for nothing has
    died, and the job is smaller than what it costs.
    """

    name: ClassVar[str] = "participation"
    safety: ClassVar[bool] = False
    watches: ClassVar[tuple[type[events.Event], ...]] = ()
    limits: ClassVar[type[Limits]] = ParticipationLimits

    def conclude(self, history: History) -> Finding:
        past, replicas = history.past, self.plan.replicas()
        if not past.steps:
            return self.finding(Outcome.UNKNOWN, "no step was committed", {"steps_committed": 0})
        moves = past.moves()
        moves_s = {move.step: move.t_s for move in moves}
        late = sorted(step for step, tally in past.steps.tallies.items() if tally.last_s > moves_s.get(step + 1, inf))
        presences = [_presence(replica, moves, moves_s, late, past) for replica in replicas]
        share = sum(presence.steps for presence in presences) / (len(replicas) * len(past.steps))
        alone = sum(one.participants == 1 for one in past.steps.tallies.values()) if len(replicas) > 1 else 0
        idle = [one for replica in replicas for one in self._idle(replica, past)]
        worst = max(idle, key=lambda one: one.steps, default=None)
        measures: dict[str, float | int | str | None] = {
            "steps_committed": len(past.steps),
            "share": share,
            "steps_alone": alone,
            "idle_steps": worst.steps if worst else 0,
            "participating_s": sum(one.participating_s for one in presences),
            "healing_s": sum(one.healing_s for one in presences),
            "away_s": sum(one.away_s for one in presences),
        }
        missed = [presence for presence in presences if presence.away_s or presence.healing_s]
        measures |= {name: value for one in missed for name, value in one.measures().items()}
        by_itself = f"; {counted(alone, 'step')} had one participant" if alone else ""
        if worst is not None and worst.steps > self.limit.idle_steps_max:
            reading = (
                f"{worst.member} was up and took no part in {counted(worst.steps, 'step')} that others committed "
                f"after step {worst.after_step} (at most {self.limit.idle_steps_max}){by_itself}"
            )
            return self.finding(Outcome.FAIL, reading, measures, worst.evidence)
        trained = f"{share:.1%} of all replica-steps were trained"
        if self.limit.share_min is not None and share < self.limit.share_min:
            reading = f"{trained} (at least {self.limit.share_min:.1%}){by_itself}"
            return self.finding(Outcome.FAIL, reading, measures)
        if missing := past.missing(replicas):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        return self.finding(Outcome.PASS, f"{trained}{_said_least(missed)}{by_itself}", measures)

    def _idle(self, replica: str, past: Past) -> Iterator[_Idle]:
        """Stretches in which steps were missed by a trainer that was up and under no fault."""
        lives = past.lives.get(replica, [])
        hits_s = [(hit.t_s, hit.due_s) for hit in past.hits if hit.member == replica]
        for life, following in zip(lives, [*lives[1:], None], strict=False):
            for since, until in _stretches(life, following):
                until_s = min(until.t_s if until else past.until_s, past.until_s)
                since_s = max([since.t_s, *(due_s for hit_s, due_s in hits_s if hit_s < until_s)])
                if since_s < until_s and not past.blind_between(replica, since.seq):
                    before = max(past.top(since_s), since.step if isinstance(since, Commit) else 0)
                    after = until.step - 1 if isinstance(until, Commit) else past.top(until_s)
                    evidence = (since.seq, until.seq) if until else (since.seq,)
                    yield _Idle(replica, before, max(0, after - before), evidence)


def _presence(replica: str, moves: list[Tally], moves_s: dict[int, float], late: list[int], past: Past) -> _Presence:
    """How a replica spent the time between the job's first commit and the end; `moves_s` tells when steps were new,
    `late` which of them someone committed when the next one was there."""
    presence, until_s = _Presence(replica), past.until_s
    lives = past.lives.get(replica, [])
    heals = _Heals(times for life in lives for times in _heals(life, until_s))
    step, at_s = moves[0].step - 1, moves[0].t_s
    presence.alive_s = sum(_lifetime_s(life, at_s, until_s) for life in lives)
    since_s, next_move_s = at_s, moves_s.get
    for commit, last, last_s in _parts(replica, moves_s, late, past):
        presence.steps += 0 if commit.healing else max(0, last - max(step, commit.step - 1))
        # One that stood still finishes its step on waking, when its peers have long gone on without it.
        if commit.step > step + 1 or commit.t_s > next_move_s(commit.step + 1, inf):
            presence.participating_s += at_s - since_s
            presence.miss(heals, at_s, commit.t_s)
            since_s = commit.t_s
        at_s = last_s
        if last > step:
            step = last
    presence.participating_s += at_s - since_s
    if moves[-1].step <= step + 1:
        presence.participating_s += max(0.0, until_s - at_s)
    elif until_s > at_s:
        presence.miss(heals, at_s, until_s)
    return presence


def _parts(replica: str, moves_s: dict[int, float], late: list[int], past: Past) -> Iterator[tuple[Commit, int, float]]:
    """A replica's stretches: the first commit, step and time of the last; each commit by itself when one came after
    the job's next step."""
    for stretch in (one for part in past.timeline(replica).parts for one in part.stretches):
        if bisect_left(late, stretch.begin.step) < bisect_right(late, stretch.last) and _came_late(stretch, moves_s):
            yield from ((commit, commit.step, commit.t_s) for commit in stretch.own)
        else:
            yield stretch.begin, stretch.last, stretch.last_s


def _came_late(stretch: Stretch, moves_s: dict[int, float]) -> bool:
    """Whether a commit of it came after the job's next step."""
    next_moves_s = map(moves_s.get, range(stretch.begin.step + 1, stretch.last + 2), itertools.repeat(inf))
    return any(map(operator.gt, stretch.times_s, next_moves_s))


class _Heals:
    """The times in which a replica was loading a peer's state."""

    def __init__(self, times: Iterable[tuple[float, float]]) -> None:
        self._times = sorted(times)
        self._begins_s = [begin_s for begin_s, _ in self._times]
        self._over_s = list(itertools.accumulate((end_s for _, end_s in self._times), max))
        """When each and all before it were over."""

    def within_s(self, since_s: float, until_s: float) -> float:
        """How long that was, within a time."""
        some = self._times[bisect_right(self._over_s, since_s) : bisect_left(self._begins_s, until_s)]
        return sum(max(0.0, min(end_s, until_s) - max(begin_s, since_s)) for begin_s, end_s in some)


def _heals(life: Life, until_s: float) -> Iterator[tuple[float, float]]:
    """From when to when a life was loading a peer's state: until it had it, began once more, or ended."""
    ends = [*life.heals, *life.heals_started, *filter(None, (life.exited, life.failed))]
    ends_s = sorted(end.t_s for end in ends)
    for begun in life.heals_started:
        later = bisect_right(ends_s, begun.t_s)
        yield begun.t_s, ends_s[later] if later < len(ends_s) else until_s


def _lifetime_s(life: Life, since_s: float, until_s: float) -> float:
    """How long a member lived within a time."""
    born = life.started or life.trainer
    end_s = min(life.exited.t_s, until_s) if life.exited else until_s
    return max(0.0, end_s - max(born.t_s if born else since_s, since_s))


def _stretches(life: Life, following: Life | None) -> Iterator[tuple[Mark, Mark | None]]:
    """Where steps may have been missed in a life: up to its first commit, where its steps jump, and after the last."""
    ends: list[Mark | None] = [life.exited, life.failed, life.finished, life.doomed]
    ends += [following.started or following.trainer] if following else []
    end = min((one for one in ends if one is not None), key=lambda one: one.t_s, default=None)
    if not life.commits:
        if life.trainer:
            yield life.trainer, end
        return
    if life.trainer:
        yield life.trainer, life.commits[0]
    if life.commits[-1].step - life.commits[0].step >= len(life.commits):
        for one, later in itertools.pairwise(life.stretches):
            if later.begin.step > one.last + 1:
                yield one.end, later.begin
    yield life.commits[-1], end


def _said_least(missed: list[_Presence]) -> str:
    """How the replica fared that took part the least."""
    if not missed:
        return ""
    least = min(missed, key=lambda one: one.participating_s)
    whole_s = least.participating_s + least.healing_s + least.away_s
    away = f"{span(least.away_s)} s away and {span(least.healing_s)} s healing of {span(whole_s)} s"
    return f"; {least.member} the least: {away}"
