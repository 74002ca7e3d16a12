"""`gradients_scaled`: every update is the mean over those who contributed."""

from __future__ import annotations

import msgspec
import pytest
from journals import Story, about, failing, frozen_and_back, judge, judge_live, lost, lost_and_back, steady

from chaos.api import Outcome, events
from chaos.monitors.gradients_scaled import GradientsScaledLimits


def test_measures_of_a_good_run() -> None:
    found = judge(lost_and_back())["gradients_scaled"]
    assert found.reading == "the gradients of 39 steps were divided by the number of their contributors"
    assert found.measures == {
        "steps_checked": 39,
        "steps_wrong": 0,
        "scales_measured": 100,
        "worst_scale": 1.0,
    }


@pytest.mark.parametrize(("scale", "outcome"), [(1.0009, Outcome.PASS), (1.02, Outcome.FAIL), (0.98, Outcome.FAIL)])
def test_a_divisor_that_does_not_fit(scale: float, outcome: Outcome) -> None:
    story = steady().alter(about(events.Step, "replica-1", step=7), gradient_scale=scale)
    findings, broken = judge_live(story)
    assert findings["gradients_scaled"].outcome is outcome
    assert ("gradients_scaled" in broken) == (outcome is Outcome.FAIL)
    assert findings["gradients_scaled"].measures["worst_scale"] == scale


def test_a_replica_that_goes_on_in_the_old_group_with_divisor_1() -> None:
    """A new lighthouse gave replica-0 a quorum of its own under the id that it had."""
    story = steady().alter(about(events.Step, "replica-0", step=15), participants=1, gradient_scale=3.0)
    found = judge(story)["gradients_scaled"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == "replica-0 committed step 15 in quorum 1 with gradients scaled by 3 (1 participant)"


def test_replicas_that_divide_by_different_numbers() -> None:
    story = steady().alter(about(events.Step, "replica-1", step=15), participants=2)
    findings, broken = judge_live(story)
    said = "replica-0 divided step 15 in quorum 1 by 3, replica-1 by 2"
    assert findings["gradients_scaled"].reading == said
    assert "gradients_scaled" in broken


def test_more_contributors_than_were_counted() -> None:
    story = steady().alter(about(events.Step, step=15), participants=2)
    findings, broken = judge_live(story)
    found = findings["gradients_scaled"]
    assert found.reading == "3 replicas contributed to step 15 in quorum 1, divided by 2"
    assert "gradients_scaled" in broken


def test_a_step_divided_by_more_than_were_there() -> None:
    story = steady().alter(about(events.Step, step=15), participants=4)
    found = judge(story)["gradients_scaled"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == "step 15 in quorum 1 was divided by 4, and 3 contributed at most"


def test_a_replica_counted_that_was_long_gone() -> None:
    story = lost_and_back().alter(about(events.Step, quorum_id=2), participants=3)
    found = judge(story)["gradients_scaled"]
    assert found.outcome is Outcome.FAIL
    assert found.measures["steps_wrong"] == 16, "of 17: the first may have been the last that it contributed to"


def test_a_replica_that_dies_after_the_exchange_has_contributed() -> None:
    """Its peers commit step 13 with it; it is killed before it can."""
    story = Story().deploy().train(12).train(1).drop(about(events.Step, "replica-1", step=13)).kill("replica-1")
    assert judge(story.wait(1.0).discard().regroup().train(9).drain().end())["gradients_scaled"].outcome is Outcome.PASS


def test_a_replica_that_is_cut_off_after_the_exchange_has_contributed() -> None:
    """It goes on in the same life from a peer's state, and never tells what became of its own step 13."""
    story = frozen_and_back()
    story.alter(about(events.Step, step=13, quorum_id=2, committed=True), quorum_id=1, participants=3)
    assert judge(story)["gradients_scaled"].outcome is Outcome.PASS


def test_a_replica_whose_own_commit_failed_has_contributed() -> None:
    story = steady().alter(about(events.Step, "replica-2", step=9), committed=False, digest=None)
    assert judge(story)["gradients_scaled"].outcome is Outcome.PASS


def test_a_commit_that_was_dropped() -> None:
    found = judge(steady().drop(about(events.Step, "replica-2", step=9)))["gradients_scaled"]
    assert found.reading == "step 9 in quorum 1 was divided by 3, and 2 contributed at most"


def test_commits_that_drain_cuts_off() -> None:
    """replica-0 commits the last step before drain begins, the others after that."""
    story = Story().deploy().train(20).drop(lambda e: about(events.Step, step=20)(e) and e.member != "replica-0")
    for member in ("replica-1", "replica-2"):
        story._step(member, 20, True, 0.2, None)
    assert judge(story.drain().end())["gradients_scaled"].outcome is Outcome.PASS


def test_replicas_that_receive_their_first_state_are_counted_and_contribute_nothing() -> None:
    """TorchFT's initial sync: two of three replicas heal in the first step, which is divided by three all the same."""
    story = steady().alter(about(events.Step, step=1), gradient_scale=1 / 3)
    story.alter(lambda e: about(events.Step, step=1)(e) and e.member != "replica-0", healing=True)
    found = judge(story)["gradients_scaled"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == ("replica-0 committed step 1 in quorum 1 with gradients scaled by 0.3333 (3 participants)")


def test_scales_that_were_not_measured() -> None:
    found = judge(steady().alter(about(events.Step, step=9), gradient_scale=None))["gradients_scaled"]
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == "3 commits told of no scale"


def test_events_that_did_not_arrive_make_it_unknown() -> None:
    story = steady().drop(about(events.Step, "replica-2", step=9))
    story.now_s = 9.7
    story.say(events.EventsLost, "replica-2", reason="seq jumps", count=1)
    findings = judge(story)
    assert findings["gradients_scaled"].outcome is Outcome.UNKNOWN
    assert not failing(findings)


def test_the_threshold_is_the_authors() -> None:
    story = lost().alter(about(events.Step, "replica-0", step=9), gradient_scale=1.005).drain().end()
    limits = GradientsScaledLimits(scale_error_max=0.01)
    assert judge(story, gradients_scaled=limits)["gradients_scaled"].outcome is Outcome.PASS


def test_a_replica_whose_clock_is_ahead_tells_of_its_last_steps_in_drain() -> None:
    story = steady()
    ahead = about(events.Step, "replica-2")
    story.told = [msgspec.structs.replace(one, t_s=one.t_s + 0.8) if ahead(one) else one for one in story.told]
    assert judge(story)["gradients_scaled"].outcome is Outcome.PASS


def test_a_replica_that_was_silent_long_before_drain_has_not_contributed() -> None:
    story = steady().drop(lambda event: about(events.Step, "replica-2")(event) and event.step > 20)
    assert judge(story)["gradients_scaled"].outcome is Outcome.FAIL


def test_a_step_of_any_number_costs_nothing() -> None:
    """As a damaged journal may hold it: not all numbers up to it are gone through."""
    story = steady()
    last = max(event.step for event in story.told if isinstance(event, events.Step))
    story.alter(about(events.Step, "replica-2", step=last), step=2**70)
    assert judge(story)["gradients_scaled"].outcome is Outcome.FAIL
