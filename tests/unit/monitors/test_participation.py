"""`participation`: who is alive also takes part."""

from __future__ import annotations

import pytest
from journals import Story, about, frozen_and_back, judge, lost, lost_and_back, steady

from chaos.api import Outcome, events
from chaos.monitors.participation import ParticipationLimits


def test_a_run_without_faults() -> None:
    found = judge(steady())["participation"]
    assert found.reading == "100.0% of all replica-steps were trained"
    assert found.measures == {
        "steps_committed": 30,
        "share": 1.0,
        "steps_alone": 0,
        "idle_steps": 0,
        "participating_s": pytest.approx(3 * 14.6, abs=0.01),
        "healing_s": 0,
        "away_s": 0,
    }


def test_a_commit_after_the_jobs_next_step_is_no_part_in_the_job() -> None:
    """All else about it is ordinary."""
    story = steady()
    (late,) = filter(about(events.Step, "replica-1", step=7), story.told)
    story.alter(lambda event: event is late, t_s=late.t_s + 0.4995)
    assert judge(story)["participation"].measures["replica-1.away_s"] == pytest.approx(0.9995)


def test_measures_of_a_lost_replica() -> None:
    """replica-1 was away from step 12 to 29, but for a heal of 0.3 s, and contributed to 21 of 39 steps."""
    found = judge(lost_and_back())["participation"]
    missed_s = 18 * 0.5 + 1.12
    assert found.measures["share"] == pytest.approx((2 * 39 + 21) / 117)
    assert found.measures["replica-1.steps"] == 21
    assert found.measures["replica-1.healing_s"] == pytest.approx(0.3)
    assert found.measures["replica-1.away_s"] == pytest.approx(missed_s - 0.3)
    assert found.measures["replica-1.participating_s"] == pytest.approx(20 * 0.5 + 0.1, abs=0.01)
    assert found.measures["replica-1.alive_s"] == pytest.approx(5.61 + 11 * 0.5 + 9.5 * 0.5 + 0.5, abs=1.0)
    assert "replica-0.steps" not in found.measures, "it was always there"
    assert found.reading == (
        "84.6% of all replica-steps were trained; replica-1 the least: 9.8 s away and 0.3 s healing of 20.2 s"
    )


def test_a_step_finished_on_waking_is_no_participation() -> None:
    story = frozen_and_back()
    plain = judge(story)["participation"].measures
    released_s = next(e.t_s for e in story.journal() if isinstance(e, events.InjectionReverted))
    story.now_s, story.quorum_id, story.group = released_s + 0.01, 1, {"replica-0", "replica-1", "replica-2"}
    story._step("replica-1", 13, True, 0.0, "state 13")
    woken = judge(story)["participation"].measures
    assert woken["replica-1.participating_s"] == pytest.approx(plain["replica-1.participating_s"])
    assert woken["replica-1.away_s"] == pytest.approx(plain["replica-1.away_s"])


def left_out(steps: int) -> Story:
    """replica-2 lives and its trainer is up, but the others go on without it."""
    story = Story().deploy().train(12)
    story.group.discard("replica-2")
    return story.regroup().train(steps).drain().end()


@pytest.mark.parametrize(("steps", "outcome"), [(100, Outcome.PASS), (101, Outcome.FAIL)])
def test_a_replica_that_is_up_and_left_out(steps: int, outcome: Outcome) -> None:
    found = judge(left_out(steps))["participation"]
    assert found.outcome is outcome
    if outcome is Outcome.FAIL:
        assert found.reading == (
            "replica-2 was up and took no part in 101 steps that others committed after step 12 (at most 100)"
        )
        journal = left_out(steps).journal()
        assert [(journal[seq].member, journal[seq].step) for seq in found.evidence] == [("replica-2", 12)]  # type: ignore[attr-defined]


def test_one_replica_commits_alone() -> None:
    """No peer can resolve the others' names: their heals fail at every step."""
    story = Story().deploy().train(1)
    story.group = {"replica-0"}
    found = judge(story.regroup().train(120).drain().end())["participation"]
    assert found.outcome is Outcome.FAIL
    assert found.measures["steps_alone"] == 120
    assert found.reading.endswith("(at most 100); 120 steps had one participant")


def test_a_returned_trainer_that_is_never_taken_in() -> None:
    story = lost().restart("replica-1").train(9).wait(0.1).build("replica-1").train(130).drain().end()
    found = judge(story)["participation"]
    assert found.outcome is Outcome.FAIL
    assert found.measures["idle_steps"] == 130


def test_a_gap_in_the_middle() -> None:
    story = Story(steps=1000).deploy().train(12)
    story.group.discard("replica-2")
    story.regroup().train(150).join("replica-2").train(10)
    found = judge(story.drain().end())["participation"]
    assert found.outcome is Outcome.FAIL
    assert found.measures["idle_steps"] == 150


def test_who_is_dead_booting_or_frozen_is_not_idle() -> None:
    story = Story(steps=1000).deploy().train(12).kill("replica-1").wait(1.0).discard().regroup().train(150)
    story.restart("replica-1").train(150).build("replica-1").join("replica-1").train(10)
    story.freeze("replica-2").wait(1.0).discard().regroup().train(150).release().train(2).join("replica-2").train(9)
    found = judge(story.drain().end())["participation"]
    assert found.outcome is Outcome.PASS
    assert found.measures["idle_steps"] == 2


def test_a_trainer_that_died_and_was_followed_by_another_is_not_idle() -> None:
    """The end of a trainer in a living pod may be told by nothing but the next one's start."""
    story = Story(steps=1000).deploy().train(12)
    story.group.discard("replica-2")
    story.regroup().train(60).build("replica-2").join("replica-2").train(120)
    assert judge(story.drain().end())["participation"].outcome is Outcome.PASS


def test_the_thresholds_are_the_authors() -> None:
    share = judge(lost_and_back(), participation=ParticipationLimits(share_min=0.9))["participation"]
    assert (share.outcome, share.reading) == (
        Outcome.FAIL,
        "84.6% of all replica-steps were trained (at least 90.0%)",
    )
    idle = ParticipationLimits(idle_steps_max=20)
    assert judge(left_out(21), participation=idle)["participation"].outcome is Outcome.FAIL


def test_what_did_not_arrive_makes_no_replica_idle() -> None:
    story = left_out(150)
    story.now_s = 14.0
    found = judge(story.say(events.EventsLost, "replica-2", reason="stream closed"))["participation"]
    assert found.outcome is Outcome.UNKNOWN


def test_no_commits() -> None:
    assert judge(steady().drop(about(events.Step)))["participation"].outcome is Outcome.UNKNOWN
