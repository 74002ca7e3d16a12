"""What runs show of an objective: which side of a limit, told or not, decided or open, and how much worse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from suites import MACHINE, RECOVERY, STACK, suite

from chaos.gate import judge
from chaos.gate.baseline import Baseline, Measured
from chaos.gate.suite import Suite
from chaos.model.gate import GateRun, Reading
from chaos.model.verdict import Outcome

MEDIAN = {"measure": RECOVERY, "percentile": 50, "at_most": 10}
NEVER = float("inf")
PASS, FAIL, UNKNOWN = Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN


def run(seconds: float | None, outcome: Outcome = PASS, of_monitor: Outcome | None = None) -> GateRun:
    measures = {} if seconds is None else {RECOVERY: seconds}
    monitors = {"replicas_rejoin": of_monitor or outcome}
    return GateRun("", 1, outcome, 1.0, (), (), monitors=monitors, measures=measures)


def readings(asked: Suite, runs: Sequence[GateRun], *before: float) -> list[Reading]:
    """Of the suite's own objectives: without safety and that all runs pass."""
    measured = Measured("", "", (1.0,), {RECOVERY: before})
    baseline = Baseline("", "", STACK, MACHINE, {"replica-lost": measured}) if before else None
    told = judge.readings(asked.entries[0], runs, asked, baseline)
    return [reading for reading in told if reading.objective not in (judge.UNSAFE, "all runs pass")]


def limit(folder: Any, objective: dict[str, Any], runs: Sequence[GateRun]) -> Reading:
    (only,) = readings(suite(folder, objective, runs=max(5, len(runs))), runs)
    return only


@pytest.mark.parametrize("side", ["at_most", "at_least"])
def test_who_meets_the_limit_exactly_meets_it(tmp_path, side):
    objective = {"measure": RECOVERY, "percentile": 50, side: 10}
    assert limit(tmp_path, objective, [run(10.0)] * 5).outcome is PASS


def test_a_monitor_that_could_not_tell_says_nothing_of_its_measure(tmp_path):
    """Even if it measured something; and not as if it had failed."""
    told = limit(tmp_path, MEDIAN, [run(99.0, FAIL, UNKNOWN)] * 5)
    assert (told.outcome, told.seen, told.value) == (UNKNOWN, 0, None)


def test_a_rate_of_a_monitor_counts_the_runs_that_it_passes(tmp_path):
    objective = {"rate": "replicas_rejoin", "at_least": 0.5}
    told = limit(tmp_path, objective, [run(1.0)] * 4 + [run(None, FAIL)] * 2)
    assert told.value == pytest.approx(4 / 6)
    assert limit(tmp_path, objective, [run(None, FAIL)] * 5).outcome is FAIL


def test_limits_share_the_risk_of_a_false_alarm(tmp_path):
    """Six bad runs of seven come by chance in 6 % of gates: rare enough for one limit, and not for each of three."""
    runs = [run(1.0), *[run(99.0)] * 6]
    others = [MEDIAN | {"at_most": 20}, MEDIAN | {"at_most": 30}]
    assert readings(suite(tmp_path, MEDIAN, runs=7), runs)[0].outcome is FAIL
    assert readings(suite(tmp_path, MEDIAN, *others, runs=7), runs)[0].outcome is UNKNOWN


def test_once_all_runs_are_made_everything_is_decided(tmp_path):
    for runs in ([run(None)] * 5, [run(1.0), *[run(99.0)] * 4]):
        told = limit(tmp_path, MEDIAN, runs)
        assert (told.outcome, told.decided) == (UNKNOWN, True)
    assert not limit(tmp_path, MEDIAN, [run(None)] * 4).decided


def test_a_percentile_of_what_should_be_large_counts_from_above(tmp_path):
    """Three quarters of the runs have as much as the lower quartile, or more."""
    objective = {"measure": RECOVERY, "percentile": 25, "at_least": 0}
    told = limit(tmp_path, objective, [run(float(number)) for number in range(1, 13)])
    assert (told.outcome, told.value, told.bound) == (PASS, 4.0, 1.0)
    told = limit(tmp_path, objective | {"at_least": 4}, [run(float(number)) for number in range(1, 13)])
    assert told.outcome is UNKNOWN, "three of twelve below it are too many to be sure"


COMPARED = MEDIAN | {"at_most": 99, "worse_by_max": 1}
BEFORE = (10.0, 11.0, 12.0, 13.0, 14.0)


def compared(asked: Suite, *seconds: float) -> Reading:
    (told,) = [
        reading
        for reading in readings(asked, [run(value) for value in seconds], *BEFORE)
        if reading.objective.startswith(f"{RECOVERY} no more than 1 times")
    ]
    return told


def test_a_comparison_waits_for_runs_that_could_turn_it(tmp_path):
    asked = suite(tmp_path, COMPARED)
    assert (compared(asked, 20, 20, 20).outcome, compared(asked, 20, 20, 20).decided) == (UNKNOWN, False)
    assert (compared(asked, 20, 20, 20, 20).outcome, compared(asked, 20, 20, 20, 20).decided) == (FAIL, True)
    assert (compared(asked, 9, 9, 9).outcome, compared(asked, 9, 9, 9, 9).outcome) == (UNKNOWN, PASS)
    close = compared(asked, 10, 11, 12, 13, 14)
    assert (close.outcome, close.decided) == (UNKNOWN, True)
    assert "too close to tell" in close.reading


def test_comparisons_share_their_risk_of_a_false_alarm(tmp_path):
    """One that is faster and four that are slower come by chance in 8 % of gates."""
    again = COMPARED | {"at_most": 98, "worse_by_max": 2}
    assert compared(suite(tmp_path, COMPARED), 9, 20, 20, 20, 20).outcome is FAIL
    assert compared(suite(tmp_path, COMPARED, again), 9, 20, 20, 20, 20).outcome is UNKNOWN


@pytest.mark.parametrize("side", ["at_most", "at_least"])
def test_worse_is_a_multiple_of_the_median_before_and_has_a_bound(tmp_path, side):
    limits = {"at_most": 99} if side == "at_most" else {"at_least": 0}
    asked = suite(tmp_path, {"measure": RECOVERY, "percentile": 50, "worse_by_max": 1.5} | limits)
    times = 2.0 if side == "at_most" else 0.5
    _, told = readings(asked, [run(value * times) for value in BEFORE], *BEFORE)
    assert told.outcome is FAIL
    assert told.value == pytest.approx(2.0)
    assert told.bound is not None and 2.0 < told.bound < 2.5
    assert f"2.00 times worse, with 90% confidence at most {told.bound:.2f} times" in told.reading


def test_who_never_came_back_is_beyond_any_multiple(tmp_path):
    asked = suite(tmp_path, COMPARED, {"rate": "verdict", "at_least": 0.5})
    told = readings(asked, [run(None, FAIL)] * 5, *BEFORE)[1]
    assert (told.outcome, told.value, told.bound) == (FAIL, None, None)
    assert "median never in 5 runs" in told.reading
