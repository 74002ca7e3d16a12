"""`survivors_continue`: the replicas that were not hit go on training, soon."""

from __future__ import annotations

import pytest
from journals import (
    Story,
    about,
    failing,
    frozen,
    frozen_and_back,
    judge,
    lost,
    lost_and_back,
    node_off_and_back,
    slowed,
    steady,
)

from chaos.api import CpuLimit, Freeze, Outcome, events
from chaos.monitors.survivors_continue import SurvivorsContinueLimits


def finding(story: Story, **limits: float):
    return judge(story, survivors_continue=SurvivorsContinueLimits(**limits))["survivors_continue"]


def test_measures_of_a_good_run() -> None:
    found = finding(lost_and_back())
    assert found.reading == (
        "replica-1 was hit at step 12: the first survivor committed after 1.5 s, the last after 1.5 s; 1 step discarded"
    )
    assert found.measures == {
        "fault_step": 12,
        "failed_step_s": pytest.approx(1.0),
        "requorum_s": pytest.approx(1.0),
        "gap_s": pytest.approx(1.501),
        "first_gap_s": pytest.approx(1.5),
        "uncommitted_steps": 1,
        "uncommitted_tries": 2,
        "largest_gap_s": pytest.approx(1.62),
    }


def test_measures_at_64_replicas() -> None:
    measures = finding(lost_and_back(64)).measures
    assert (measures["uncommitted_steps"], measures["uncommitted_tries"]) == (1, 63)
    assert measures["gap_s"] == pytest.approx(1.5 + 0.062)


def test_measures_without_a_fault() -> None:
    found = finding(steady())
    assert found.reading == "no fault was planned; no replica waited more than 0.5 s for a commit"
    assert found.measures["gap_s"] is None
    assert found.measures["largest_gap_s"] == pytest.approx(0.5)


@pytest.mark.parametrize(("gap_s_max", "outcome"), [(1.63, Outcome.PASS), (1.4, Outcome.FAIL)])
def test_the_threshold_is_the_authors(gap_s_max: float, outcome: Outcome) -> None:
    assert finding(lost_and_back(), gap_s_max=gap_s_max).outcome is outcome


def test_all_survivors_stall() -> None:
    """A data NIC is down and its owner heartbeats on: nobody commits for half a minute."""
    story = Story().deploy().train(12).kill("replica-1").wait(30.7).discard().regroup().train(10)
    found = finding(story.drain().end())
    assert found.outcome is Outcome.FAIL
    assert found.reading == "replica-2 did not commit for 31.2 s after replica-1 was hit at step 12 (at most 30)"


def test_one_survivor_stalls() -> None:
    story = Story().deploy().train(12).kill("replica-1").wait(1.0).discard()
    story.group = {"replica-0"}
    story.regroup().train(70)
    story.group = {"replica-0", "replica-2"}
    found = finding(story.regroup().train(5).drain().end())
    assert found.outcome is Outcome.FAIL
    assert found.measures["first_gap_s"] == pytest.approx(1.5)
    assert found.reading.startswith("replica-2 did not commit for 36.5 s after replica-1 was hit")


def test_survivors_that_never_commit_again() -> None:
    story = Story().deploy().train(12).kill("replica-1").wait(40.0).drain().end()
    found = finding(story)
    assert found.outcome is Outcome.FAIL
    assert found.reading == "replica-0 did not commit for 40.1 s after replica-1 was hit at step 12 (at most 30)"


def test_a_run_that_ends_before_the_next_commit_tells_nothing() -> None:
    found = finding(Story().deploy().train(12).kill("replica-1").wait(3.0).drain().end())
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == "the run ended before the next commit of replica-0 and replica-2"


def test_a_stall_long_after_the_fault() -> None:
    story = lost().train(5).wait(32.0).train(5).drain().end()
    found = finding(story)
    assert found.outcome is Outcome.FAIL
    assert found.reading.startswith("replica-0 did not commit for 32.5 s from ")


def test_the_absence_of_the_victim_is_not_its_peers_stall() -> None:
    story = lost().train(100).restart("replica-1").build("replica-1").join("replica-1").train(10).drain().end()
    assert not failing(judge(story))
    assert finding(story).measures["largest_gap_s"] == pytest.approx(1.62)


def test_a_survivor_that_is_hit_itself_is_excused() -> None:
    story = Story(4).deploy().train(12).kill("replica-1").wait(0.5).kill("replica-2").wait(1.0).regroup().train(80)
    found = finding(story.drain().end())
    assert found.outcome is Outcome.PASS
    assert found.reading == (
        "replica-1 was hit at step 12: the first survivor committed after 2.0 s, the last after 2.0 s; "
        "no step discarded (the longest wait of 2 faults)"
    )


def test_a_replica_still_away_is_no_survivor_of_the_next_fault() -> None:
    story = Story(4).deploy().train(12).kill("replica-1").wait(1.0).regroup().train(5)
    found = finding(story.kill("replica-2").wait(1.0).regroup().train(80).drain().end())
    assert found.outcome is Outcome.PASS


def test_two_victims_of_one_fault() -> None:
    story = Story(4).deploy().train(12).kill("replica-1", "replica-2").wait(1.0).discard().regroup().train(20)
    assert finding(story.drain().end()).reading.startswith("replica-1 and replica-2 were hit at step 12: the first")


def test_discarded_steps_are_counted_once_and_tries_by_all() -> None:
    story = Story().deploy().train(12).kill("replica-1").wait(1.0).discard()
    story.wait(1.0)._step("replica-2", 13, False, 0.0, None, "peer is gone")
    measures = finding(story.regroup().train(10).drain().end()).measures
    assert (measures["uncommitted_steps"], measures["uncommitted_tries"]) == (2, 3)


def test_a_fault_after_the_last_step_has_no_survivors() -> None:
    story = Story().deploy().train(12)
    for member in story.replicas:
        story.say(events.TrainerFinished, member, 0.1, step=12, reason="steps_reached")
    found = finding(story.wait(0.2).kill("replica-1").wait(90.0).phase("drain").end())
    assert (found.outcome, found.reading) == (Outcome.UNKNOWN, "no replica was left that had to go on")


def test_nobody_left_to_go_on() -> None:
    story = Story(2).deploy().train(12).kill("replica-0", "replica-1").wait(5.0).drain().end()
    found = finding(story)
    assert (found.outcome, found.reading) == (Outcome.UNKNOWN, "no replica was left that had to go on")


def test_a_planned_fault_that_was_not_in_force() -> None:
    found = finding(lost_and_back().drop(about(events.InjectionInForce)), gap_s_max=120.0)
    assert (found.outcome, found.reading) == (Outcome.UNKNOWN, "no fault was in force")


def test_a_fault_at_the_end_of_the_job_asks_for_nothing_more() -> None:
    story = Story().deploy().train(12).kill("replica-1").wait(0.1)
    for member in sorted(story.group):
        story.say(events.TrainerFinished, member, step=12, reason="steps_reached")
    assert finding(story.wait(90.0).phase("drain").end()).outcome is Outcome.PASS


def test_a_gap_with_lost_events_is_no_stall() -> None:
    story = Story().deploy().train(12)
    story.say(events.EventsLost, "replica-0", 10.0, reason="stream closed")
    story.group.discard("replica-0")
    story.train(70)
    story.group.add("replica-0")
    found = finding(story.train(5).drain().end())
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == "events of replica-0 did not arrive (stream closed)"


def test_a_stall_before_the_loss_stays_a_stall() -> None:
    story = Story().deploy().train(12).wait(40.0).train(5)
    story.say(events.EventsLost, "replica-0", 0.1, reason="stream closed")
    assert finding(story.train(5).drain().end()).outcome is Outcome.FAIL


def test_the_gap_of_a_held_fault_begins_with_its_beginning() -> None:
    found = finding(frozen_and_back())
    assert found.reading == (
        "replica-1 was hit at step 12: the first survivor committed after 1.5 s, the last after 1.5 s; 1 step discarded"
    )
    assert found.measures["largest_gap_s"] == pytest.approx(1.62)


def test_a_frozen_replica_is_away_until_it_is_back() -> None:
    """However long: it was frozen, and once it is not it has the time that replicas_rejoin gives it."""
    story = frozen().train(100).join("replica-1").train(10).drain().end()
    assert finding(story).outcome is Outcome.PASS


def test_a_replica_that_is_back_has_to_go_on_like_the_others() -> None:
    story = frozen().train(1).join("replica-1").train(5)
    story.group.discard("replica-1")
    found = finding(story.regroup().train(70).drain().end())
    assert found.outcome is Outcome.FAIL
    assert found.reading.startswith("replica-1 did not commit for 35.1 s from ")


def test_a_slow_replica_is_a_survivor() -> None:
    found = finding(slowed(), gap_s_max=2.5)
    assert found.outcome is Outcome.PASS
    assert found.reading.startswith("replica-1 was hit at step 12: the first survivor committed after 2.0 s")
    assert finding(slowed(), gap_s_max=1.9).outcome is Outcome.FAIL


def test_a_slow_replica_must_not_be_left_behind() -> None:
    story = Story().deploy().train(12).strike("cpu.starve", CpuLimit("replica-1", 0.2), removes=False)
    story.group.discard("replica-1")
    found = finding(story.regroup().train(80).release().train(10).drain().end())
    assert found.outcome is Outcome.FAIL
    assert found.reading.startswith("replica-1 did not commit for 45.1 s after replica-1 was hit at step 12")


def test_all_replicas_survive_a_lighthouse_that_stands_still() -> None:
    story = Story().deploy().train(12).strike("lighthouse.freeze", Freeze("lighthouse")).wait(10.0).release()
    found = finding(story.train(10).drain().end())
    assert found.outcome is Outcome.PASS
    assert found.reading.startswith("lighthouse was hit at step 12: the first survivor committed after 10.5 s")
    assert finding(story, gap_s_max=10.0).outcome is Outcome.FAIL


def test_the_survivors_of_a_node_are_on_other_nodes() -> None:
    found = finding(node_off_and_back())
    assert found.reading.startswith("node-1 was hit at step 12: the first survivor committed after 1.5 s")
    assert found.measures["uncommitted_tries"] == 2
