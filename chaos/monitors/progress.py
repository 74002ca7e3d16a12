"""`progress`: the job keeps moving forward."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf
from operator import attrgetter, sub
from typing import ClassVar

from chaos.api import Finding, History, Limits, Monitor, Outcome, Past, Seconds, Tally, counted, span

_time_s = attrgetter("t_s")


class ProgressLimits(Limits, frozen=True):
    """Thresholds of `progress`."""

    stall_s_max: Seconds = 60.0
    """The longest time without a newly committed step, from the first commit until drain."""


class Progress(Monitor[ProgressLimits]):
    """A new step is committed again and again, at most `stall_s_max` apart.

    A stalled job burns its machines for nothing and tells nobody: every process is alive and heartbeats.
    """

    name: ClassVar[str] = "progress"
    safety: ClassVar[bool] = False
    limits: ClassVar[type[Limits]] = ProgressLimits

    def conclude(self, history: History) -> Finding:
        past = history.past
        moves = past.moves()
        if not moves:
            return self.finding(Outcome.UNKNOWN, "no step was committed", {"steps_committed": 0})
        stall_s, since = self._longest_stall(moves, past)
        before, during, after = _rates(moves, past, self.plan.replicas())
        measures: dict[str, float | int | str | None] = {
            "steps_committed": len(past.steps),
            "steps_per_s_before": before,
            "steps_per_s_during": during,
            "steps_per_s_after": after,
            "longest_stall_s": stall_s,
        }
        if stall_s > self.limit.stall_s_max:
            reading = (
                f"no new step was committed for {span(stall_s)} s after step {since.step} "
                f"(at most {self.limit.stall_s_max:g})"
            )
            return self.finding(Outcome.FAIL, reading, measures, [since.seq])
        if missing := past.missing(self.plan.replicas()):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        reading = f"{counted(len(past.steps), 'step')} committed, never more than {span(stall_s)} s apart"
        if before is not None and after is not None:
            meanwhile = "" if during is None else f"{during:.2f} until all was over, "
            reading += f"; {before:.2f} steps/s before the first fault, {meanwhile}{after:.2f} after"
        return self.finding(Outcome.PASS, reading, measures)

    def _longest_stall(self, moves: list[Tally], past: Past) -> tuple[float, Tally]:
        """The longest wait for a new step, up to the end of the time that is judged, and the commit it followed."""
        times_s = [*(move.t_s for move in moves), max(past.until_s, moves[-1].t_s)]
        stalls_s = list(map(sub, times_s[1:], times_s))
        longest_s = max(stalls_s)
        return longest_s, moves[stalls_s.index(longest_s)]


def _rates(
    moves: list[Tally], past: Past, replicas: tuple[str, ...]
) -> tuple[float | None, float | None, float | None]:
    """Steps per second before the first fault, from there to the end of the last one, and after that.

    A fault that took a member out has ended when that is back, any other when it is over.
    """
    if not past.hits:
        return _rate(moves), None, None
    first_s = min(hit.t_s for hit in past.hits)
    last_s = max(past.back_s(hit) if hit.removes and hit.member in replicas else hit.due_s for hit in past.hits)
    before = _rate(moves[: bisect_left(moves, first_s, key=_time_s)])
    during = None
    if first_s < last_s < inf:
        steps = bisect_right(moves, last_s, key=_time_s) - bisect_right(moves, first_s, key=_time_s)
        during = steps / (last_s - first_s)
    return before, during, _rate(moves[bisect_left(moves, last_s, key=_time_s) :])


def _rate(moves: list[Tally]) -> float | None:
    if len(moves) < 2 or moves[-1].t_s <= moves[0].t_s:
        return None
    return (moves[-1].step - moves[0].step) / (moves[-1].t_s - moves[0].t_s)
