"""`goodput`: what the faults cost, in the field's terms."""

from __future__ import annotations

import itertools
import statistics
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar

from msgspec import Meta

from chaos.api import Finding, History, Limits, Monitor, Outcome, Past, Plan, Tally, span

Share = Annotated[float, Meta(gt=0, le=1)]
_STALL_FACTOR = 2.0
"""A step that takes this many times the usual time waited for something."""


class GoodputLimits(Limits, frozen=True):
    """Thresholds of `goodput`, None by default: what is a good share depends on how often the experiment strikes.

    One kill in a run of a minute is 60 failures an hour; a real job of any size sees one in hours.
    """

    step_efficiency_min: Share | None = None
    """Steps committed of steps tried, over all replicas."""
    ettr_min: Share | None = None
    """Productive time of the job's time."""
    tokens_share_min: Share | None = None
    """Committed tokens per second, of those before the first fault."""


@dataclass(slots=True)
class _Interval:
    """From one new step of the job to the next, or to the end, and how many replicas took part in training it.

    `productive_s` is the part that training it took; the rest was waiting, or work on tries that were discarded.
    """

    since_s: float
    until_s: float
    productive_s: float
    participants: int

    def lost_s(self, replicas: int) -> float:
        """Replica-seconds in which nothing was trained, those of absent replicas among them."""
        return (self.until_s - self.since_s) * replicas - self.productive_s * self.participants


class Goodput(Monitor[GoodputLimits]):
    """Little of the machines' time is lost to faults; below the limits, if any are set, the price was too high.

    - step efficiency: committed tries of all tries, of all replicas.
    - ETTR, the effective training time ratio: productive time over wall-clock time, from the first commit on (Kokolis
      et al. 2024, "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", arXiv:2410.21680). The
      time to a new step is productive in full, unless tries of it were discarded, the quorum changed before it, or it
      took over twice the usual time: then only the usual time is, the median of undisturbed steps.
    - tokens per second that were committed, and their share of the rate before the first fault of the same run.
    - lost replica-seconds: all time of all replicas in which they trained nothing that was kept. Times the GPUs of a
      replica these are lost GPU-seconds. Failure cost is lost from the begin of a fault until it is over and its
      victims are back; what is lost at other times is the cost of the steady state. So is a new quorum between two
      steps at such a time, after the baseline: timers that are too short for the machine take the slow for dead.
    """

    name: ClassVar[str] = "goodput"
    safety: ClassVar[bool] = False
    limits: ClassVar[type[Limits]] = GoodputLimits

    def __init__(self, plan: Plan, limits: GoodputLimits) -> None:
        super().__init__(plan, limits)
        self._replicas = frozenset(plan.replicas())

    def conclude(self, history: History) -> Finding:
        past = history.past
        moves = past.moves()
        if not moves or moves[-1].t_s <= moves[0].t_s:
            reading = "no two steps were committed one after the other"
            return self.finding(Outcome.UNKNOWN, reading, {"steps_committed": len(past.steps)})
        lives = [life for replica in self._replicas for life in past.lives.get(replica, [])]
        committed, discarded = sum(len(life.commits) for life in lives), sum(len(life.discards) for life in lives)
        measures: dict[str, float | int | str | None] = {
            "step_efficiency": committed / (committed + discarded),
            **self._rates(moves, past),
            **self._costs(moves, past),
        }
        if low := self._low(measures):
            return self.finding(Outcome.FAIL, "; ".join(low), measures)
        if missing := past.missing(self.plan.replicas()):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        if self.limit.tokens_share_min is not None and measures["tokens_share"] is None:
            reading = "no tokens per second before a fault to compare with"
            return self.finding(Outcome.UNKNOWN, reading, measures)
        return self.finding(Outcome.PASS, _said(measures), measures)

    def _low(self, measures: dict[str, float | int | str | None]) -> list[str]:
        """What is below its limit."""
        limits = {
            "step_efficiency": ("step efficiency", self.limit.step_efficiency_min),
            "ettr": ("ETTR", self.limit.ettr_min),
            "tokens_share": ("the share of tokens per second before the first fault", self.limit.tokens_share_min),
        }
        return [
            f"{said} was {value:.1%} (at least {limit:.1%})"
            for name, (said, limit) in limits.items()
            if limit is not None and isinstance(value := measures[name], float) and value < limit
        ]

    def _rates(self, moves: list[Tally], past: Past) -> dict[str, float | int | str | None]:
        """Tokens per second from the first commit on: over all, and before the first fault."""
        begun_s = min((started.t_s for started in past.started.values()), default=-inf)
        control = [move for move in moves if move.t_s < begun_s]
        whole_s = max(past.until_s, moves[-1].t_s) - moves[0].t_s
        trained = [part for replica in self._replicas for part in _trained(replica, past)]
        tokens = sum(part.tokens * len(part.steps) for part in trained)
        rate = (tokens - _tokens_of(moves[:1], trained)) / whole_s
        control_s = control[-1].t_s - control[0].t_s if control else 0.0
        control_rate = _tokens_of(control[1:], trained) / control_s if control_s else None
        share = rate / control_rate if control_rate else None
        return {"tokens_per_s": rate, "tokens_per_s_control": control_rate, "tokens_share": share}

    def _costs(self, moves: list[Tally], past: Past) -> dict[str, float | int | str | None]:
        """Where the time went: productive, lost around faults, lost at other times."""
        intervals = list(_intervals(moves, past))
        windows = _Windows(past, self._replicas)
        losts_s = [one.lost_s(len(self._replicas)) for one in intervals]
        touched = [windows.touch(one.since_s, one.until_s) for one in intervals]
        lost_s, failure_s = sum(losts_s), sum(itertools.compress(losts_s, touched))
        discards_s = [one.t_s for lives in past.lives.values() for life in lives for one in life.discards]
        in_vain = sum(windows.touch(at_s, at_s) for at_s in discards_s)
        healthy_s = past.phases["disturb"].t_s if "disturb" in past.phases else inf
        regrouped = [
            (one.t_s, later.t_s)
            for one, later in itertools.pairwise(moves)
            if later.quorum_id != one.quorum_id and one.t_s >= healthy_s
        ]
        return {
            "ettr": sum(one.productive_s for one in intervals) / (intervals[-1].until_s - intervals[0].since_s),
            "lost_replica_s": lost_s,
            "failure_replica_s": failure_s,
            "failure_replica_s_per_fault": failure_s / len(past.started) if past.started else None,
            "steady_replica_s": lost_s - failure_s,
            "failure_discards": in_vain,
            "steady_discards": len(discards_s) - in_vain,
            "steady_quorums": sum(not windows.touch(*times_s) for times_s in regrouped),
        }


@dataclass(slots=True)
class _Trained:
    """Steps in a row in which a replica trained so many tokens each."""

    steps: range
    tokens: int


def _trained(replica: str, past: Past) -> Iterator[_Trained]:
    """What a replica contributed. A step that is trained again after its state was lost trains no new tokens."""
    highest = 0
    stretches = (stretch for life in past.lives.get(replica, []) for stretch in life.stretches)
    for stretch in sorted(stretches, key=lambda one: one.begin.seq):
        if not stretch.begin.healing and stretch.last > highest:
            yield _Trained(range(max(highest + 1, stretch.begin.step), stretch.last + 1), stretch.tokens)
            highest = stretch.last


def _tokens_of(moves: list[Tally], trained: list[_Trained]) -> int:
    """The tokens that all trained in the steps of some moves, which are in the order of steps."""
    steps = [move.step for move in moves]
    return sum(
        one.tokens * (bisect_left(steps, one.steps.stop) - bisect_left(steps, one.steps.start)) for one in trained
    )


class _Windows:
    """The times from the begin of a fault until it was over, and the replicas that it had taken out were back."""

    def __init__(self, past: Past, replicas: frozenset[str]) -> None:
        self._begins_s: list[float] = []
        self._ends_s: list[float] = []
        ends_s = {fault_id: started.t_s for fault_id, started in past.started.items()}
        for hit in past.hits:
            end_s = past.back_s(hit) if hit.removes and hit.member in replicas else hit.due_s
            ends_s[hit.fault_id] = max(ends_s.get(hit.fault_id, hit.t_s), hit.t_s, end_s)
        begins_s = {fault_id: started.t_s for fault_id, started in past.started.items()}
        for begin_s, end_s in sorted((begins_s.get(fault_id, end_s), end_s) for fault_id, end_s in ends_s.items()):
            if self._ends_s and begin_s <= self._ends_s[-1]:
                self._ends_s[-1] = max(end_s, self._ends_s[-1])
            else:
                self._begins_s.append(begin_s)
                self._ends_s.append(end_s)

    def touch(self, since_s: float, until_s: float) -> bool:
        """Whether any of them overlaps with a time."""
        index = bisect_left(self._ends_s, since_s)
        return index < len(self._ends_s) and self._begins_s[index] <= until_s


def _intervals(moves: list[Tally], past: Past) -> Iterator[_Interval]:
    """The time from the first commit on, cut at each new step."""
    tried_in_vain = {one.step for lives in past.lives.values() for life in lives for one in life.discards}
    pairs = list(itertools.pairwise(moves))
    calm = [
        later.t_s - one.t_s
        for one, later in pairs
        if later.step not in tried_in_vain and later.quorum_id == one.quorum_id and later.step == one.step + 1
    ]
    usual_s = statistics.median(calm or [later.t_s - one.t_s for one, later in pairs])
    for one, later in pairs:
        lasted_s = later.t_s - one.t_s
        disturbed = later.step in tried_in_vain or later.quorum_id != one.quorum_id
        disturbed = disturbed or lasted_s > _STALL_FACTOR * usual_s
        productive_s = min(usual_s, lasted_s) if disturbed else lasted_s
        yield _Interval(one.t_s, later.t_s, productive_s, later.participants)
    last, until_s = moves[-1], max(past.until_s, moves[-1].t_s)
    yield _Interval(last.t_s, until_s, min(usual_s, until_s - last.t_s), last.participants)


def _said(measures: dict[str, float | int | str | None]) -> str:
    def share(name: str) -> str:
        return f"{measures[name]:.1%}"

    def seconds(name: str) -> str:
        return span(float(measures[name] or 0))

    reading = (
        f"step efficiency {share('step_efficiency')}, ETTR {share('ettr')}, {measures['tokens_per_s']:.0f} tokens/s"
    )
    if measures["failure_replica_s_per_fault"] is None:
        return f"{reading}; {seconds('lost_replica_s')} replica-seconds lost without a fault"
    if measures["tokens_share"] is not None:
        reading += f", {share('tokens_share')} of those before the first fault"
    return (
        f"{reading}; {seconds('failure_replica_s_per_fault')} replica-seconds lost for each fault, "
        f"{seconds('steady_replica_s')} at other times"
    )
