"""The course of a gate: which runs are made, what they come to, when it stops, and how it goes on."""

from __future__ import annotations

import msgspec
import pytest
from suites import BROKEN, INVALID, MACHINE, RECOVERY, STACK, Runs, gated, recovered, suite, verdict

from chaos.gate import baseline as baselines
from chaos.gate import course
from chaos.gate.course import Ended
from chaos.model.errors import BadInput
from chaos.model.ports import PlatformLost
from chaos.model.verdict import Expectation, Outcome

MEDIAN = {"measure": RECOVERY, "percentile": 50, "at_most": 10}


def outcomes(gate) -> dict[str, str]:
    return {reading.objective: reading.outcome.value for one in gate.experiments for reading in one.readings}


def recorded(tmp_path, asked, *seconds: float):
    """A baseline of runs that recovered so."""
    gate = gated(asked, Runs(*map(recovered, seconds)), tmp_path, all_runs=True)
    baselines.write(tmp_path / "baseline.json", gate)
    return baselines.read(tmp_path / "baseline.json", asked, asked.spec.budget_s)


def test_good_runs_pass_with_seeds_that_count_up(tmp_path):
    runs = Runs(*map(recovered, (4, 5, 6, 5, 4)))
    gate = gated(suite(tmp_path, MEDIAN), runs, tmp_path)
    assert gate.outcome is Outcome.PASS
    assert runs.seeds == [1, 2, 3, 4, 5]
    assert gate.complete
    assert [reading.value for reading in gate.experiments[0].readings] == [None, 1.0, 5.0]
    assert course.stored(tmp_path) == gate


def test_a_job_that_breaks_fails_the_gate_at_once_and_says_why(tmp_path):
    runs = Runs(recovered(4), BROKEN)
    gate = gated(suite(tmp_path, MEDIAN), runs, tmp_path)
    assert gate.outcome is Outcome.FAIL
    assert "replica-1 did not come back" in gate.reason
    assert runs.seeds == [1, 2]


def test_a_rate_tolerates_what_so_many_runs_allow_and_no_more(tmp_path):
    asked = suite(tmp_path, {"rate": "verdict", "at_least": 0.5}, runs=10)
    good, bad = [recovered(1)] * 8, [BROKEN] * 2
    gate = gated(asked, Runs(*bad, *good), tmp_path)
    assert (gate.outcome, len(gate.experiments[0].runs)) == (Outcome.PASS, 10)
    gate = gated(asked, Runs(*[BROKEN] * 3, *good), tmp_path)
    assert (gate.outcome, gate.experiments[0].readings[1].outcome) == (Outcome.UNKNOWN, Outcome.UNKNOWN)
    gate = gated(asked, Runs(*[BROKEN] * 10), tmp_path)
    assert (gate.outcome, len(gate.experiments[0].runs)) == (Outcome.FAIL, 8)


def test_runs_that_cannot_change_the_outcome_are_not_made_unless_all_are_wanted(tmp_path):
    asked = suite(tmp_path, {"rate": "verdict", "at_least": 0.5}, runs=10)
    gate = gated(asked, Runs(*[recovered(1)] * 10), tmp_path)
    assert (gate.outcome, len(gate.experiments[0].runs)) == (Outcome.PASS, 8)
    gate = gated(asked, Runs(*[recovered(1)] * 10), tmp_path, all_runs=True)
    assert (gate.outcome, len(gate.experiments[0].runs)) == (Outcome.PASS, 10)


def test_a_broken_safety_property_is_never_tolerated(tmp_path):
    asked = suite(tmp_path, {"rate": "verdict", "at_least": 0.5}, runs=10)
    gate = gated(asked, Runs(recovered(1), verdict(Outcome.FAIL, "states differ", unsafe=True)), tmp_path)
    assert gate.outcome is Outcome.FAIL
    assert "same_state failed in 1 run" in gate.reason


def test_slow_runs_fail_and_one_slow_run_leaves_it_open(tmp_path):
    gate = gated(suite(tmp_path, MEDIAN), Runs(*[recovered(11)] * 5), tmp_path)
    assert gate.outcome is Outcome.FAIL
    assert "5 beyond the limit" in gate.reason
    gate = gated(suite(tmp_path, MEDIAN), Runs(recovered(11), *[recovered(4)] * 4), tmp_path)
    assert gate.outcome is Outcome.UNKNOWN
    assert gate.reason.startswith("not enough to tell")


def test_who_never_came_back_took_for_ever(tmp_path):
    """A run without the number is not left out of the percentile when its own monitor failed."""
    asked = suite(tmp_path, {"rate": "verdict", "at_least": 0.5}, MEDIAN, runs=6, confidence=0.9)
    gate = gated(asked, Runs(*[BROKEN] * 6), tmp_path)
    assert outcomes(gate)["median of replicas_rejoin.recovery_s at most 10"] == "FAIL"


def test_an_invalid_run_is_made_once_more_and_a_second_one_ends_the_gate_undecided(tmp_path):
    runs = Runs(recovered(4), INVALID, *[recovered(4)] * 4)
    gate = gated(suite(tmp_path, MEDIAN), runs, tmp_path)
    assert gate.outcome is Outcome.PASS
    assert runs.seeds == [1, 2, 2, 3, 4, 5]
    assert any("proved nothing" in note for note in gate.notes)
    gate = gated(suite(tmp_path, MEDIAN), Runs(INVALID, INVALID), tmp_path)
    assert gate.outcome is Outcome.UNKNOWN
    assert gate.reason.startswith("2 runs proved nothing, the last of replica-lost: fault_in_force: pod.kill did not")


def test_a_known_bug_that_shows_as_expected_is_a_pass_and_no_safety_finding(tmp_path):
    shown = verdict(Outcome.FAIL, "states differ", Expectation(True, "fails as expected"), unsafe=True)
    gate = gated(suite(tmp_path, runs=2), Runs(shown, shown), tmp_path)
    assert (gate.outcome, gate.experiments[0].runs[0].reasons) == (Outcome.PASS, ())
    gone = verdict(Outcome.PASS, "", Expectation(False, "passes, though it was expected to fail"))
    gate = gated(suite(tmp_path, runs=2), Runs(gone), tmp_path)
    assert gate.outcome is Outcome.FAIL
    assert "though it was expected" in gate.reason


def test_experiments_take_turns_and_those_that_are_decided_are_left_out(tmp_path):
    entries = [{"experiment": "replica-lost", "runs": 3}, {"experiment": "steady", "runs": 1}]
    seen = []

    def execute(experiment, folder, limit_s):
        seen.append(experiment.name)
        return folder / experiment.name, recovered(1), Ended.DONE

    gate = gated(suite(tmp_path, experiments=entries), execute, tmp_path)
    assert gate.outcome is Outcome.PASS
    assert seen == ["replica-lost", "steady", "replica-lost", "replica-lost"]


def test_an_interrupted_gate_goes_on_where_it_was_and_comes_to_the_same(tmp_path):
    asked = suite(tmp_path, MEDIAN)
    gate = gated(asked, Runs(recovered(4), recovered(5), Ended.INTERRUPTED), tmp_path)
    assert (gate.outcome, gate.complete) == (Outcome.UNKNOWN, False)
    assert gate.reason.startswith("interrupted; ")
    runs = Runs(*map(recovered, (6, 5, 4)))
    before = msgspec.structs.replace(course.stored(tmp_path), spent_s=100.0)
    after = gated(asked, runs, tmp_path, before=before)
    assert runs.seeds == [3, 4, 5]
    whole = gated(asked, Runs(*map(recovered, (4, 5, 6, 5, 4))), tmp_path)
    assert after.experiments[0].readings == whole.experiments[0].readings
    assert after.spent_s >= 100


def test_whoever_interrupts_between_two_runs_can_go_on_as_well(tmp_path):
    def execute(experiment, folder, limit_s):
        raise KeyboardInterrupt

    gate = gated(suite(tmp_path, MEDIAN), execute, tmp_path)
    assert (gate.outcome, gate.complete) == (Outcome.UNKNOWN, False)
    assert gate.reason.startswith("interrupted; ")


def test_each_run_gets_the_time_that_is_left(tmp_path):
    good = Runs(*[recovered(4)] * 5)
    limits_s = []

    def execute(experiment, folder, limit_s):
        limits_s.append(limit_s)
        return good(experiment, folder, limit_s)

    gated(suite(tmp_path, MEDIAN), execute, tmp_path, budget_s=77)
    assert limits_s[0] <= 77
    assert limits_s == sorted(limits_s, reverse=True) and len(set(limits_s)) == 5


def test_a_baseline_holds_what_all_of_its_runs_measured(tmp_path):
    asked = suite(tmp_path, runs=2)
    gate = gated(asked, Runs(verdict(recovery_s=4, transfer_s=1), recovered(5)), tmp_path)
    measured = baselines.write(tmp_path / "baseline.json", gate).experiments["replica-lost"]
    assert measured.measures == {RECOVERY: (4.0, 5.0)}


def test_a_platform_that_breaks_leaves_a_gate_that_can_be_gone_on_with(tmp_path):
    asked = suite(tmp_path, MEDIAN)
    good = Runs(recovered(4))

    def execute(experiment, folder, limit_s):
        if good.seeds:
            raise PlatformLost("the host is gone")
        return good(experiment, folder, limit_s)

    gate = gated(asked, execute, tmp_path)
    assert (gate.outcome, gate.complete) == (Outcome.UNKNOWN, False)
    assert gate.reason.startswith("the host is gone; ")
    assert len(course.stored(tmp_path).experiments[0].runs) == 1


def test_what_is_gone_on_with_must_be_the_same(tmp_path):
    gate = course.begun(suite(tmp_path, MEDIAN), STACK, MACHINE, None)
    other = course.begun(suite(tmp_path, MEDIAN, runs=6), STACK, MACHINE, None)
    newer = course.begun(suite(tmp_path, MEDIAN), {"torchft": "0.3.0"}, MACHINE, None)
    course.check_resumable(gate, gate, tmp_path)
    elsewhere = course.begun(suite(tmp_path, MEDIAN), STACK, {"cpu": "b"}, None)
    for now, what in ((other, "suite"), (newer, "stack"), (elsewhere, "machine")):
        with pytest.raises(BadInput, match=f"its {what} was"):
            course.check_resumable(gate, now, tmp_path)


def test_without_time_for_another_run_it_ends_undecided(tmp_path):
    gate = gated(suite(tmp_path, MEDIAN), Runs(recovered(4), Ended.OUT_OF_TIME), tmp_path)
    assert (gate.outcome, gate.complete) == (Outcome.UNKNOWN, True)
    assert gate.reason.startswith("the budget of 1000 s is used up; ")
    assert len(gate.experiments[0].runs) == 1


def test_no_run_is_begun_that_will_not_fit(tmp_path):
    asked = suite(tmp_path, MEDIAN)
    usual = {"replica-lost": baselines.Measured("", "", (50.0,), {})}
    slow = baselines.Baseline("a-gate", "", STACK, MACHINE, usual)
    runs = Runs()
    gate = gated(asked, runs, tmp_path, slow, budget_s=49)
    assert (gate.outcome, runs.seeds) == (Outcome.UNKNOWN, [])


def test_slower_than_the_baseline_fails_as_fast_passes_and_close_to_the_limit_is_open(tmp_path):
    asked = suite(tmp_path, MEDIAN | {"at_most": 100, "worse_by_max": 1.5})
    baseline = recorded(tmp_path, asked, 4, 4.2, 4.4, 4.6, 4.8)
    label = "replicas_rejoin.recovery_s no more than 1.5 times worse than the baseline"
    for seconds, outcome in (((12, 12, 13, 11, 12), "FAIL"), ((4, 5, 4, 5, 4), "PASS"), ((6, 7, 6, 7, 6), "UNKNOWN")):
        gate = gated(asked, Runs(*map(recovered, seconds)), tmp_path, baseline)
        assert outcomes(gate)[label] == outcome, gate.reason
        assert gate.outcome.value == outcome


def test_less_is_worse_where_more_is_asked_for(tmp_path):
    asked = suite(tmp_path, {"measure": RECOVERY, "percentile": 50, "at_least": 0.1, "worse_by_max": 1.5})
    baseline = recorded(tmp_path, asked, 0.9, 0.95, 0.92, 0.91, 0.93)
    assert gated(asked, Runs(*[recovered(0.5)] * 5), tmp_path, baseline).outcome is Outcome.FAIL
    assert gated(asked, Runs(*[recovered(0.9)] * 5), tmp_path, baseline).outcome is Outcome.PASS


def test_a_comparison_says_what_else_has_changed(tmp_path):
    asked = suite(tmp_path, MEDIAN)
    baseline = recorded(tmp_path, asked, *[4] * 5)
    now = course.begun(asked, {"torchft": "0.3.0"}, {"cpu": "b", "cores": "2"}, None)
    gate = gated(asked, Runs(*[recovered(4)] * 5), tmp_path, baseline, before=now)
    machine, stack = gate.notes
    assert "another machine (cpu a, now b)" in machine
    assert "another stack (torchft 0.2.0, now 0.3.0)" in stack


def test_a_measure_that_its_monitor_does_not_tell_is_the_users_mistake(tmp_path):
    asked = suite(tmp_path, MEDIAN | {"measure": "replicas_rejoin.recovry_s"})
    with pytest.raises(BadInput, match="did you mean 'recovery_s'"):
        gated(asked, Runs(recovered(4)), tmp_path)


def test_a_measure_that_a_passing_run_lacks_is_not_seen(tmp_path):
    """Neither good nor bad: a replica that came back in the same life was not respawned."""
    gate = gated(
        suite(tmp_path, MEDIAN | {"measure": "replicas_rejoin.respawn_s"}), Runs(*[recovered(4)] * 5), tmp_path
    )
    assert gate.outcome is Outcome.UNKNOWN
    assert "told by 0 runs of 5" in gate.reason
