"""`progress`: the job keeps moving forward."""

from __future__ import annotations

import pytest
from journals import Story, about, failing, judge, lost, lost_and_back, steady

from chaos.api import Outcome, events
from chaos.monitors.progress import ProgressLimits


def test_measures_of_a_good_run() -> None:
    found = judge(lost_and_back())["progress"]
    assert found.reading == (
        "39 steps committed, never more than 1.6 s apart; "
        "2.00 steps/s before the first fault, 1.80 until all was over, 2.00 after"
    )
    assert found.measures == {
        "steps_committed": 39,
        "steps_per_s_before": pytest.approx(2.0),
        "steps_per_s_during": pytest.approx(18 / 10.001),
        "steps_per_s_after": pytest.approx(2.0),
        "longest_stall_s": pytest.approx(1.62),
    }


def test_rates_without_a_fault_and_without_a_return() -> None:
    assert judge(steady())["progress"].measures["steps_per_s_after"] is None
    assert judge(lost().drain().end())["progress"].measures["steps_per_s_after"] is None


def test_rates_around_two_faults() -> None:
    """2 steps a second at first; the one step between the faults and the return is not of either time."""
    story = Story().deploy().train(12).kill("replica-1").wait(5.0).regroup().train(1).wait(5.0).kill("lighthouse")
    story.restart("replica-1").wait(5.0).build("replica-1").join("replica-1").train(10)
    measures = judge(story.drain().end())["progress"].measures
    assert measures["steps_per_s_before"] == pytest.approx(2.0)
    assert measures["steps_per_s_after"] == pytest.approx(2.0)


@pytest.mark.parametrize(("stall_s", "outcome"), [(59.0, Outcome.PASS), (61.0, Outcome.FAIL)])
def test_a_stall(stall_s: float, outcome: Outcome) -> None:
    story = Story().deploy().train(12).wait(stall_s).train(12).drain().end()
    found = judge(story)["progress"]
    assert found.outcome is outcome
    assert found.measures["longest_stall_s"] == pytest.approx(stall_s + 0.5)
    if outcome is Outcome.FAIL:
        assert found.reading == "no new step was committed for 61.5 s after step 12 (at most 60)"
        (last,) = [e.seq for e in story.journal() if about(events.Step, "replica-0", step=12)(e)]
        assert found.evidence == (last,)


def test_the_threshold_is_the_authors() -> None:
    assert judge(lost_and_back(), progress=ProgressLimits(stall_s_max=1.5))["progress"].outcome is Outcome.FAIL


def test_a_stall_until_the_end() -> None:
    story = Story().deploy().train(12).wait(100.0).drain().end()
    assert judge(story)["progress"].outcome is Outcome.FAIL


def test_a_stall_counts_though_the_run_was_broken_off() -> None:
    story = Story().deploy().train(12).wait(100.0).end(completed=False)
    assert judge(story)["progress"].outcome is Outcome.FAIL


def test_steps_that_are_trained_again_are_no_progress() -> None:
    story = Story().deploy().train(20)
    story.step = 0
    found = judge(story.regroup().train(18).drain().end(), progress=ProgressLimits(stall_s_max=9.0))["progress"]
    assert found.outcome is Outcome.FAIL
    assert found.measures["longest_stall_s"] == pytest.approx(9.1)


def test_no_commits_at_all() -> None:
    found = judge(Story().deploy().wait(100.0).drain().end())["progress"]
    assert (found.outcome, found.reading) == (Outcome.UNKNOWN, "no step was committed")


def test_other_replicas_may_wait_when_the_job_moves() -> None:
    """Progress is the job's, not each replica's."""
    story = Story().deploy().train(12)
    story.group.discard("replica-2")
    findings = judge(story.regroup().train(80).drain().end())
    assert findings["progress"].outcome is Outcome.PASS
    assert failing(findings) == {"survivors_continue"}


def test_nothing_is_due_once_all_steps_are_trained() -> None:
    story = steady().drop(about(events.PhaseStarted, phase="drain")).drop(about(events.RunEnded))
    story.drop(about(events.MemberExited)).alter(about(events.TrainerFinished), reason="steps_reached")
    assert judge(story.wait(200.0).phase("drain").end())["progress"].outcome is Outcome.PASS
