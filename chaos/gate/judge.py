"""Judges a gate: what its runs show of each objective, and what that means for all of them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
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
    valid = [run for run in runs if run.outcome is not Outcome.UNKNOWN]
    told = [_safety(entry, valid)]
    for objective in entry.objectives:
        told.append(_share(objective, entry, valid, suite))
        if baseline is not None and objective.worse_by_max is not None and objective.measure is not None:
            before = baseline.experiments[entry.name].measures[objective.measure]
            told.append(_comparison(objective, entry, valid, suite, before))
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


def _safety(entry: Entry, valid: list[GateRun]) -> Reading:
    broken = [run for run in valid if run.unsafe]
    seen = len(valid)
    if broken:
        reading = f"{', '.join(broken[0].unsafe)} failed in {counted(len(broken), 'run')}{_why(broken[0])}"
        return Reading(UNSAFE, Outcome.FAIL, True, reading, seen)
    done = seen >= entry.runs
    outcome = Outcome.PASS if done else Outcome.UNKNOWN
    return Reading(UNSAFE, outcome, done, f"in none of {counted(seen, 'run')}{_of(seen, entry)}", seen)


def _share(objective: Objective, entry: Entry, valid: list[GateRun], suite: Suite) -> Reading:
    seen = [(run, value) for run in valid if (value := observed(run, objective)) is not None]
    bad = [run for run, value in seen if not _good(value, objective)]
    good = len(seen) - len(bad)
    risk_fail = suite.risk_fail if guesses(objective) else suite.risk
    outcome, decided = bounds.share_judged(good, len(bad), entry.runs, objective.share, suite.risk, risk_fail)
    decided = decided or len(valid) >= entry.runs
    values = [value for _, value in seen]
    if objective.measure is None:
        value = good / len(seen) if seen else None
        bound: float | None = bounds.share_at_least(good, len(seen), suite.risk)
        limit = objective.at_least
        reading = f"{good} of {counted(len(seen), 'run')}{_of(len(seen), entry)}"
        reading += f": with {suite.spec.confidence:.0%} confidence at least {bound:.0%} of all would" if good else ""
    else:
        value, bound = _estimate(values, objective, suite)
        limit = objective.at_most if objective.at_most is not None else objective.at_least
        reading = _measured(values, len(bad), value, bound, objective, entry, suite)
    if bad and outcome is not Outcome.PASS:
        reading += _why(bad[0])
    return Reading(objective.label, outcome, decided, reading, len(seen), _finite(value), _finite(bound), limit)


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


def _measured(
    values: list[float],
    bad: int,
    value: float | None,
    bound: float | None,
    objective: Objective,
    entry: Entry,
    suite: Suite,
) -> str:
    if value is None:
        return f"no run told it{_of(0, entry)}"
    reading = f"{_number(value)} in {counted(len(values), 'run')}{_of(len(values), entry)}, "
    reading += f"from {_number(min(values))} to {_number(max(values))}"
    if bound is not None and isfinite(bound):
        side = "at most" if objective.at_most is not None else "at least"
        reading += f"; {side} {_number(bound)} with {suite.spec.confidence:.0%} confidence"
    return reading + (f"; {bad} beyond the limit" if bad else "")


def _comparison(
    objective: Objective, entry: Entry, valid: list[GateRun], suite: Suite, before: Sequence[float]
) -> Reading:
    """Values now against those of the baseline, stretched by what is allowed: are they smaller, or larger?"""
    assert objective.worse_by_max is not None
    values = [value for run in valid if (value := observed(run, objective)) is not None]
    missing, allowed = max(0, entry.runs - len(values)), objective.worse_by_max
    if objective.at_most is not None:
        now, limits = values, [value * allowed for value in before]
    else:
        now, limits = [-value for value in values], [-value / allowed for value in before]
    outcome, decided = bounds.order_judged(now, missing, limits, suite.risk, suite.risk_worse)
    label = f"{objective.measure} no more than {allowed:g} times worse than the baseline"
    was = statistics.median(before)
    if not values:
        return Reading(label, outcome, False, f"no run told it{_of(0, entry)}", 0, limit=allowed)
    median = statistics.median(values)
    worse = _times(median, was) if objective.at_most is not None else _times(was, median)
    reading = f"median {_number(median)} in {counted(len(values), 'run')}{_of(len(values), entry)}, "
    reading += f"{_number(was)} in the baseline's {len(before)}"
    reading += "" if worse is None else f": {worse:.2f} times as much" if objective.at_most is not None else ""
    if outcome is Outcome.UNKNOWN and decided:
        reading += "; too few runs, or too close to the limit, to tell"
    return Reading(label, outcome, decided or len(valid) >= entry.runs, reading, len(values), worse, None, allowed)


def _times(value: float, other: float) -> float | None:
    return value / other if other > 0 and isfinite(value) and isfinite(other) else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _number(value: float) -> str:
    if not isfinite(value):
        return "never" if value > 0 else "nothing"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _of(seen: int, entry: Entry) -> str:
    return f" of {entry.runs}" if seen < entry.runs else ""


def _why(run: GateRun) -> str:
    return f"; seed {run.seed}: {run.reasons[0]}" if run.reasons else f"; first with seed {run.seed}"
