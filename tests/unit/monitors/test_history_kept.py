"""`history_kept`: what was committed stays committed."""

from __future__ import annotations

import pytest
from journals import Story, about, failing, judge, judge_live, lost, lost_and_back

from chaos.api import Outcome, events


def fresh_start() -> Story:
    """Kill A, restart A, kill B before A has healed: a fresh state goes on alone."""
    story = Story(2).deploy().train(12).kill("replica-0").wait(1.0).regroup().train(3)
    story.restart("replica-0").wait(5.0).build("replica-0").kill("replica-1").wait(1.0)
    story.step, story.group, story.healing = 0, {"replica-0"}, set()
    return story.regroup().train(8).drain().end()


def test_measures_of_a_good_run() -> None:
    found = judge(lost_and_back())["history_kept"]
    assert found.reading == "39 steps committed, none of them a second time"
    assert found.measures == {"steps_committed": 39, "falls_back": 0, "steps_lost": 0, "jumps": 0}


def test_a_state_that_falls_back_to_the_start() -> None:
    findings, broken = judge_live(fresh_start())
    found = findings["history_kept"]
    assert found.outcome is Outcome.FAIL
    assert found.measures == {"steps_committed": 15, "falls_back": 8, "steps_lost": 15, "jumps": 0}
    assert found.reading == (
        "the state fell back: replica-0 committed step 1 at 20.1 s, which replica-0 had committed at 5.6 s "
        "(8 such commits)"
    )
    (first,) = [e.seq for e in fresh_start().journal() if e.t_s > 15 and about(events.Step, step=1)(e)]
    assert broken["history_kept"] == first, "seen at the first commit of the fresh state"
    assert first in found.evidence


@pytest.mark.parametrize("step", [18, 20])
def test_a_replica_that_trains_a_step_twice(step: int) -> None:
    story = Story().deploy().train(20)
    story._step("replica-0", step, True, 0.1, None)
    findings, broken = judge_live(story.train(10).drain().end())
    assert failing(findings) == {"history_kept"}
    assert "history_kept" in broken


def test_a_step_that_the_group_trains_again_in_a_later_quorum() -> None:
    story = Story().deploy().train(12)
    story.step = 9
    findings, broken = judge_live(story.regroup().train(1).drain().end())
    assert findings["history_kept"].outcome is Outcome.FAIL
    assert findings["history_kept"].measures["falls_back"] == 3
    assert findings["history_kept"].measures["steps_lost"] == 3
    assert "history_kept" in broken


def test_a_step_that_replicas_train_which_were_not_there_before() -> None:
    """The two that know the state are gone; one that never heard of it begins at an older one."""
    story = Story().deploy()
    story.group = {"replica-0", "replica-1"}
    story.regroup().train(12).kill("replica-0", "replica-1")
    story.group, story.step = {"replica-2"}, 4
    findings, broken = judge_live(story.regroup().train(3).drain().end())
    found = findings["history_kept"]
    assert found.outcome is Outcome.FAIL
    assert found.measures["falls_back"] == 3
    assert found.reading.startswith("the state fell back: replica-2 committed step 5 at")
    (second,) = [e.seq for e in story.journal() if about(events.Step, "replica-2", step=6)(e)]
    assert broken["history_kept"] == second, "certain once something is built on the step that was trained again"


def test_a_replica_that_goes_below_the_step_it_joined_at() -> None:
    story = lost().restart("replica-1").build("replica-1").join("replica-1").train(10)
    story._step("replica-1", 15, True, 0.1, None)
    findings, broken = judge_live(story.wait(0.5).drain().end())
    assert findings["history_kept"].outcome is Outcome.FAIL
    assert "replica-1 committed step 15 at" in findings["history_kept"].reading
    assert "history_kept" in broken


@pytest.mark.parametrize("told_s", [0.01, 5.0])
def test_a_step_that_died_with_its_replica_is_trained_again(told_s: float) -> None:
    """replica-1 finished step 13 and was killed; its peers had seen it vanish. The news of its end may come late."""
    story = Story().deploy().train(12)
    story._step("replica-1", 13, True, 0.4, "state 13")
    story.wait(0.4).kill("replica-1").alter(about(events.MemberExited, "replica-1"), t_s=story.now_s + told_s)
    story.wait(1.0).discard().regroup().train(10)
    findings, broken = judge_live(story.drain().end())
    assert findings["history_kept"].outcome is Outcome.PASS
    assert "history_kept" not in broken


def test_a_step_that_was_finished_on_waking_is_healed_away() -> None:
    """replica-1 stood still between exchange and commit of step 13, which its peers had to train again."""
    story = Story().deploy().train(12).freeze("replica-1").wait(1.0).discard().regroup().train(5).release()
    stale = {"step": 13, "committed": True, "quorum_id": 1, "participants": 3, "healing": False, "tokens": 8}
    story.say(events.Step, "replica-1", lr=0.1, duration_s=3.0, gradient_scale=1.0, batch=13, **stale)
    findings, broken = judge_live(story.train(1).join("replica-1").train(10).drain().end())
    assert findings["history_kept"].outcome is Outcome.PASS
    assert "history_kept" not in broken


def test_a_step_that_was_never_told_leaves_a_doubt() -> None:
    findings, broken = judge_live(lost_and_back().drop(about(events.Step, "replica-2", step=7)))
    found = findings["history_kept"]
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == "replica-2 committed step 8, and step 7 was never told of it"
    assert "history_kept" not in broken


def test_nothing_committed_or_not_all_seen() -> None:
    found = judge(Story().deploy().wait(100.0).drain().end())["history_kept"]
    assert (found.outcome, found.reading) == (Outcome.UNKNOWN, "no step was committed")
    story = lost_and_back()
    story.now_s = 10.0
    story.say(events.EventsLost, "replica-0", reason="stream closed")
    assert judge(story)["history_kept"].outcome is Outcome.UNKNOWN
