"""`same_state`: all replicas hold the same parameters and optimizer state."""

from __future__ import annotations

import pytest
from journals import Story, about, failing, judge, judge_live, lost, lost_and_back, steady

from chaos.api import Action, FaultPoint, Outcome, Point, events


def test_measures_of_a_good_run() -> None:
    found = judge(lost_and_back())["same_state"]
    assert found.reading == "the state was the same everywhere at each of 39 compared steps"
    assert found.measures == {"steps_compared": 39, "mismatches": 0, "bad_heals": 0}


def test_a_stale_learning_rate_after_the_heal() -> None:
    """The replica that came back differs from then on, without an error."""
    story = lost().restart("replica-1").train(9).build("replica-1").join("replica-1")
    story.train(10, lambda member, step: f"state {step}" + " stale" * (member == "replica-1")).drain().end()
    findings, broken = judge_live(story)
    found = findings["same_state"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == (
        "after step 27 the state of replica-1 is not that of replica-0 and replica-2; "
        "digests differ at 10 of 36 compared steps"
    )
    assert found.measures == {"steps_compared": 36, "mismatches": 10, "bad_heals": 0}
    at_27 = [e.seq for e in story.journal() if about(events.Step, step=27)(e)]
    assert found.evidence == tuple(at_27)
    assert broken["same_state"] == at_27[1], "a live run must stop at once"
    assert failing(findings) == {"same_state", "replicas_rejoin"}


def test_one_flipped_bit() -> None:
    findings = judge(steady().alter(about(events.Step, "replica-2", step=25), digest="flipped"))
    assert failing(findings) == {"same_state"}
    assert findings["same_state"].reading.startswith("after step 25 the state of replica-2 is not that of")


@pytest.mark.parametrize("source", ["replica-0", "10.0.0.1:4711"])
def test_a_heal_that_loads_another_state_than_its_donor_holds(source: str) -> None:
    heal = about(events.HealEnded, "replica-1")
    findings, broken = judge_live(lost_and_back().alter(heal, digest="torn", source=source))
    found = findings["same_state"]
    assert broken["same_state"] == found.evidence[0], "a live run must stop at once"
    assert found.outcome is Outcome.FAIL
    assert found.reading == "replica-1 loaded another state of step 29 than replica-0 holds"
    assert found.measures["bad_heals"] == 1


def test_a_heal_without_a_digest_is_left_to_the_steps() -> None:
    assert judge(lost_and_back().alter(about(events.HealEnded), digest=None))["same_state"].outcome is Outcome.PASS


def test_digests_of_some_steps_only() -> None:
    found = judge(lost_and_back().alter(lambda e: type(e) is events.Step and e.step % 5 > 0, digest=None))["same_state"]
    assert found.outcome is Outcome.PASS
    assert found.measures["steps_compared"] == 7


def test_no_digest_at_all_is_blindness() -> None:
    found = judge(lost_and_back().alter(about(events.Step), digest=None))["same_state"]
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == "no step has digests of two replicas: nothing could be compared"


def test_digests_of_one_replica_compare_nothing() -> None:
    found = judge(steady().alter(lambda e: type(e) is events.Step and e.member != "replica-0", digest=None))
    assert found["same_state"].outcome is Outcome.UNKNOWN
    assert found["same_state"].measures["steps_compared"] == 0


def test_a_new_life_without_a_comparison_is_blindness() -> None:
    story = lost_and_back().alter(about(events.Step, "replica-1", incarnation=2), digest=None)
    found = judge(story)["same_state"]
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == "no digest of replica-1 could be compared since it was hit"


def test_a_replica_that_never_came_back_was_never_compared() -> None:
    assert judge(lost().drain().end())["same_state"].outcome is Outcome.UNKNOWN


def test_a_job_of_one_replica_compares_nothing() -> None:
    assert judge(Story(1).deploy().train(10).drain().end())["same_state"].outcome is Outcome.UNKNOWN


def test_a_difference_counts_though_events_were_lost() -> None:
    story = steady().alter(about(events.Step, "replica-2", step=25), digest="flipped")
    story.now_s = 6.0
    assert failing(judge(story.say(events.EventsLost, "replica-0", reason="stream closed"))) == {"same_state"}


def test_a_replica_that_was_hit_and_never_left_is_compared_again() -> None:
    flip = FaultPoint("replica-1", Point.AFTER_COMMIT, Action.FLIP_WEIGHT, times=1)
    story = Story().deploy().train(12).strike("weights.bitflip", flip, removes=False).train(2).release().train(5)
    assert judge(story.drain().end())["same_state"].outcome is Outcome.PASS
    later = about(events.Step, "replica-1")
    blind = judge(story.alter(lambda event: later(event) and event.step > 14, digest=None))["same_state"]
    assert blind.outcome is Outcome.UNKNOWN
    assert blind.reading == "no digest of replica-1 could be compared since it was hit"
