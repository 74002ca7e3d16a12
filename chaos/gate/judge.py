"""Judges a gate: what its runs show of each objective, and what that means for all of them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from chaos.gate import bounds
from chaos.gate.baseline import Baseline
from chaos.gate.suite import VERDICT, Entry, Objective, Suite, guesses
from chaos.model.gate import GateExperiment, GateRun, Reading
from chaos.model.verdict import Outcome
from chaos.model.wording import counted

UNSAFE = "no safety property is broken"


def readings(entry: Entry, runs: Sequence[GateRun], suite: Suite, baseline: Baseline | None) -> tuple[Reading, ...]:
    """One for safety, one for each objective, one for each comparison with the baseline."""
    experiment = _Experiment(entry, [run for run in runs if run.outcome is not Outcome.UNKNOWN], suite)
    told = [experiment.safety()]
    for objective in entry.objectives:
        told.append(experiment.limit(objective))
        if baseline is not None and objective.worse_by_max is not None and objective.measure is not None:
            before = baseline.experiments[entry.name].measures[objective.measure]
            told.append(experiment.comparison(objective, objective.worse_by_max, before))
    return tuple(told)


def judged(experiments: Sequence[GateExperiment]) -> tuple[Outcome, str]:
    """The outcome of a gate so far, and the sentence that says why."""
    told = [(one, reading) for one in experiments for reading in one.readings]
    for outcome in (Outcome.FAIL, Outcome.UNKNOWN):
        for one, reading in told:
            if reading.outcome is outcome:
                return outcome, f"{one.name}: {reading.objective}: {reading.reading}"
    return Outcome.PASS, f"{counted(len(told), 'objective')} met"


def observed(run: GateRun, objective: Objective) -> float | None:
    """What a run says of an objective, 1 and 0 for a rate. None when nothing.

    Where the measure's own monitor failed, the measure is as bad as can be: who never came back took for ever.
    """
    if objective.rate == VERDICT:
        return float(run.outcome is Outcome.PASS)
    outcome = run.monitors.get(objective.monitor, Outcome.UNKNOWN)
    if outcome is Outcome.UNKNOWN:
        return None
    if objective.measure is None:
        return float(outcome is Outcome.PASS)
    if outcome is Outcome.FAIL:
        return inf if objective.at_most is not None else -inf
    return run.measures.get(objective.measure)


@dataclass(frozen=True)
class _Experiment:
    """An experiment of the suite, and those of its runs that count."""

    entry: Entry
    runs: list[GateRun]
    suite: Suite

    @property
    def over(self) -> bool:
        return len(self.runs) >= self.entry.runs

    def safety(self) -> Reading:
        """No run broke it. How many runs there must be is for the other objectives to say."""
        seen = len(self.runs)
        if broken := [run for run in self.runs if run.unsafe]:
            reading = f"{', '.join(broken[0].unsafe)} failed in {counted(len(broken), 'run')}{_why(broken[0])}"
            return Reading(UNSAFE, Outcome.FAIL, True, reading, seen)
        outcome = Outcome.PASS if seen else Outcome.UNKNOWN
        return Reading(UNSAFE, outcome, seen > 0, f"in none of {self._counted(seen)}", seen)

    def limit(self, objective: Objective) -> Reading:
        """Enough runs are on the right side of the limit."""
        seen = self._seen(objective)
        bad = [run for run, value in seen if not _good(value, objective)]
        good, suite = len(seen) - len(bad), self.suite
        risk_fail = suite.risk_fail if guesses(objective) else suite.risk
        outcome, decided = bounds.share_judged(good, len(bad), self.entry.runs, objective.share, suite.risk, risk_fail)
        bound: float | None
        if objective.measure is None:
            value, bound = good / len(seen) if seen else None, bounds.share_at_least(good, len(seen), suite.risk)
            limit = objective.at_least
            reading = f"{good} of {self._counted(len(seen))}"
            reading += f": {self._surely} at least {bound:.0%} of all would" if good else ""
        else:
            value, bound = _estimate([value for _, value in seen], objective, suite)
            limit = objective.at_most if objective.at_most is not None else objective.at_least
            reading = self._measured([value for _, value in seen], value, bound, objective)
            reading += f"; {len(bad)} beyond the limit" if bad else ""
        if bad and outcome is not Outcome.PASS:
            reading += _why(bad[0])
        bound, value = _finite(bound), _finite(value)
        return Reading(objective.label, outcome, decided or self.over, reading, len(seen), value, bound, limit)

    def comparison(self, objective: Objective, allowed: float, before: Sequence[float]) -> Reading:
        """Values now against those of the baseline, stretched by what is allowed: are they smaller, or larger?"""
        values = [value for _, value in self._seen(objective)]
        now, limits = values, [value * allowed for value in before]
        if objective.at_least is not None:  # Less is worse.
            now, limits = [-value for value in values], [-value / allowed for value in before]
        missing = max(0, self.entry.runs - len(values))
        outcome, decided = bounds.order_judged(now, missing, limits, self.suite.risk, self.suite.risk_worse)
        label = f"{objective.measure} no more than {allowed:g} times worse than the baseline"
        worse = _times_worse(values, before, objective)
        bound = _times_worse_at_most(values, before, objective, self.suite)
        reading = self._compared(values, before, worse, bound)
        if outcome is Outcome.UNKNOWN and self.over:
            reading += "; too close to tell"
        return Reading(label, outcome, decided or self.over, reading, len(values), worse, bound, allowed)

    def _seen(self, objective: Objective) -> list[tuple[GateRun, float]]:
        return [(run, value) for run in self.runs if (value := observed(run, objective)) is not None]

    @property
    def _surely(self) -> str:
        return f"with {self.suite.spec.confidence:.0%} confidence"

    def _counted(self, seen: int) -> str:
        return counted(seen, "run") + (f" of {self.entry.runs}" if seen < self.entry.runs else "")

    def _measured(self, values: list[float], value: float | None, bound: float | None, objective: Objective) -> str:
        if value is None:
            return f"told by {self._counted(0)}"
        reading = f"{_number(value)} in {self._counted(len(values))}, "
        reading += f"from {_number(min(values))} to {_number(max(values))}"
        if bound is not None and isfinite(bound):
            side = "at most" if objective.at_most is not None else "at least"
            reading += f"; {self._surely} {side} {_number(bound)}"
        return reading

    def _compared(self, values: list[float], before: Sequence[float], worse: float | None, bound: float | None) -> str:
        if not values:
            return f"told by {self._counted(0)}"
        reading = f"median {_number(statistics.median(values))} in {self._counted(len(values))}, "
        reading += f"{_number(statistics.median(before))} in the baseline's {len(before)}"
        reading += "" if worse is None else f": {worse:.2f} times worse"
        return reading if bound is None else f"{reading}, {self._surely} at most {bound:.2f} times"


def _good(value: float, objective: Objective) -> bool:
    if objective.measure is None:
        return value == 1
    if objective.at_most is not None:
        return value <= objective.at_most
    assert objective.at_least is not None
    return value >= objective.at_least


def _estimate(values: list[float], objective: Objective, suite: Suite) -> tuple[float | None, float | None]:
    """The percentile, and how bad it is at worst."""
    assert objective.percentile is not None
    if not values:
        return None, None
    if objective.at_most is not None:
        percent = objective.percentile
        return bounds.percentile(values, percent), bounds.percentile_at_most(values, percent, suite.risk)
    mirrored, percent = [-value for value in values], 100 - objective.percentile
    bound = bounds.percentile_at_most(mirrored, percent, suite.risk)
    return -bounds.percentile(mirrored, percent), None if bound is None else -bound


def _times_worse(values: Sequence[float], before: Sequence[float], objective: Objective) -> float | None:
    """The median now as a multiple of the one before, or the other way round where less is worse."""
    if not values:
        return None
    now, was = statistics.median(values), statistics.median(before)
    worse, better = (now, was) if objective.at_most is not None else (was, now)
    return worse / better if better > 0 and isfinite(worse) else None


def _times_worse_at_most(
    values: Sequence[float], before: Sequence[float], objective: Objective, suite: Suite
) -> float | None:
    """How much worse at most, as surely as the gate asks."""
    if objective.at_most is not None:
        return _finite(bounds.times_larger_at_most(values, before, suite.risk))
    return _finite(bounds.times_larger_at_most(before, [max(value, 0.0) for value in values], suite.risk))


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _number(value: float) -> str:
    if not isfinite(value):
        return "never" if value > 0 else "nothing"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _why(run: GateRun) -> str:
    return f"; seed {run.seed}: {run.reasons[0]}" if run.reasons else f"; first with seed {run.seed}"
