"""`one_quorum`: the job never splits in two."""

from __future__ import annotations

import pytest
from journals import Story, about, failing, judge, judge_live, lost, lost_and_back

from chaos.api import Outcome, events


def split() -> Story:
    """From step 12 on replica-0 goes on alone while the other two form a quorum of their own."""
    story = Story().deploy().train(12)
    now_s, step = story.now_s, story.step
    story.group = {"replica-0"}
    story.regroup().train(3)
    story.now_s, story.step, story.group = now_s, step, {"replica-1", "replica-2"}
    return story.regroup().train(3)


def test_measures_of_a_good_run() -> None:
    found = judge(lost_and_back())["one_quorum"]
    assert found.reading == "each of 39 steps was committed by one quorum"
    assert found.measures == {"steps_checked": 39, "quorums": 3, "splits": 0, "reused_ids": 0}


def test_a_split() -> None:
    story = split().drain().end()
    findings, broken = judge_live(story)
    found = findings["one_quorum"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == (
        "step 13 was committed by replica-0 in quorum 2 and replica-1 and replica-2 in quorum 3; 2 more such"
    )
    assert found.measures["splits"] == 3
    thirteen = [e.seq for e in story.journal() if about(events.Step, step=13)(e)]
    assert sorted(found.evidence) == thirteen
    assert broken["one_quorum"] in thirteen, "a live run must stop at once"


def test_a_step_discarded_in_one_quorum_and_committed_in_the_next_is_fine() -> None:
    discarded = [e for e in lost_and_back().told if about(events.Step, committed=False, quorum_id=1)(e)]
    assert {event.step for event in discarded} == {13}
    assert judge(lost_and_back())["one_quorum"].outcome is Outcome.PASS


def last_words() -> Story:
    """replica-1 commits step 13 a moment before it dies; the others discard it and train it again without it."""
    story = Story().deploy().train(12)
    story.wait(0.5)._step("replica-1", 13, True, 0.0, "gone with it")
    story.wait(0.01).kill("replica-1").wait(1.0).discard().regroup().train(7)
    return story.restart("replica-1").train(9).build("replica-1").join("replica-1").train(10)


def test_a_commit_that_died_with_its_replica_is_no_split() -> None:
    findings, broken = judge_live(last_words().drain().end())
    assert not failing(findings)
    assert not broken
    assert findings["same_state"].outcome is Outcome.PASS
    assert findings["history_kept"].measures["falls_back"] == 0


def test_it_is_one_when_the_replica_lived_on() -> None:
    story = last_words()
    story.now_s = 14.0
    story.incarnation["replica-1"], story.quorum_id = 1, 1
    story._step("replica-1", 14, True, 0.0, "gone with it")
    findings = judge(story.wait(20.0).drain().end())
    assert {"one_quorum", "same_state"} <= failing(findings)


def test_it_is_one_when_a_peer_kept_the_step() -> None:
    """Of the two that committed step 13 in the first quorum one died, but the other is alive."""
    story = Story().deploy().train(12)
    for member in ("replica-0", "replica-1"):
        story._step(member, 13, True, 0.1, "state 13")
    story.wait(0.2).kill("replica-1").wait(1.0).group.discard("replica-0")
    assert judge(story.regroup().train(1).drain().end())["one_quorum"].outcome is Outcome.FAIL


def test_a_step_that_died_with_its_replica_may_be_trained_again_with_it() -> None:
    story = Story(2).deploy().train(12)
    story._step("replica-1", 13, True, 0.1, "gone with it")
    story.wait(0.2).kill("replica-1").wait(1.0).discard()
    story.restart("replica-1").wait(5.0).build("replica-1").join("replica-1").train(10)
    findings, broken = judge_live(story.drain().end())
    assert not failing(findings)
    assert not broken
    assert findings["replicas_rejoin"].reading.endswith("; no step was trained without it")


def test_more_committers_than_participants() -> None:
    """A restarted lighthouse gave one of three a quorum of its own under the old id."""
    story = lost_and_back().alter(about(events.Step, "replica-2", step=20), participants=1)
    found = judge(story)["one_quorum"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == ("replica-0 and replica-2 committed step 20 in quorum 2, which had 1 participant")


def test_a_healing_replica_is_no_participant_and_commits() -> None:
    steps = [e for e in lost_and_back().told if about(events.Step, step=30)(e)]
    assert {(e.member, e.healing, e.participants) for e in steps} == {
        ("replica-0", False, 2),
        ("replica-1", True, 2),
        ("replica-2", False, 2),
    }
    assert judge(lost_and_back())["one_quorum"].outcome is Outcome.PASS


def test_an_id_used_again_for_others() -> None:
    story = lost_and_back().alter(about(events.Quorum, quorum_id=3), quorum_id=1, members=("replica-0", "replica-1"))
    findings, broken = judge_live(story)
    found = findings["one_quorum"]
    assert broken["one_quorum"] == found.evidence[1], "a live run must stop at once"
    assert found.outcome is Outcome.FAIL
    assert found.reading.startswith("quorum 1 was replica-0, replica-1 and replica-2, then replica-0 and replica-1")


def test_a_new_lighthouse_may_count_anew() -> None:
    story = Story().deploy().regroup().train(12).kill("lighthouse").restart("lighthouse")
    story.say(events.LighthouseStarted, "lighthouse").train(5).kill("replica-1").wait(1.0).discard()
    story.quorum_id = 0
    found = judge(story.regroup().train(5).drain().end())["one_quorum"]
    assert found.outcome is Outcome.PASS


def test_so_may_one_that_lives_in_the_controller() -> None:
    story = Story(lighthouse=False).deploy().regroup().train(12).kill("controller").restart("controller").train(5)
    story.kill("replica-1").wait(1.0).discard()
    story.quorum_id = 0
    assert judge(story.regroup().train(5).drain().end())["one_quorum"].outcome is Outcome.PASS


def renumbered(scale: float | None) -> Story:
    """The new lighthouse gives replica-0 alone the id of the group that it is in; so it commits."""
    story = Story().deploy().train(12).kill("lighthouse").restart("lighthouse")
    story.group, story.quorum_id = {"replica-0"}, 0
    story.regroup().train(1).wait(1.0).drain().end()
    return story.alter(about(events.Step, step=13), gradient_scale=scale)


@pytest.mark.parametrize("scale", [1 / 3, None])
def test_a_new_lighthouse_gives_a_replica_the_id_that_it_has(scale: float | None) -> None:
    """TorchFT takes the group for the one it is in, and goes on in that."""
    findings, broken = judge_live(renumbered(scale))
    found = findings["one_quorum"]
    assert broken["one_quorum"] == found.evidence[2], "a live run must stop at once"
    assert found.outcome is Outcome.FAIL
    assert found.reading == (
        "replica-0 was in the group of quorum 1, replica-0, replica-1 and replica-2, and stayed there when a new "
        "quorum, which is replica-0, had the same id: nothing says that those exchanged the gradients of step 13"
    )


def test_a_replica_that_leaves_a_group_of_the_same_id_is_in_one() -> None:
    assert judge(renumbered(1.0))["one_quorum"].outcome is Outcome.PASS


def test_an_id_that_comes_again_in_another_life_is_new_to_it() -> None:
    story = Story().deploy().train(12).kill("lighthouse").restart("lighthouse").kill("replica-0")
    story.group, story.quorum_id = {"replica-1", "replica-2"}, 4
    story.regroup().train(2).restart("replica-0").build("replica-0")
    story.group, story.quorum_id = {"replica-0"}, 0
    story.regroup()
    assert judge(story.wait(1.0).drain().end())["one_quorum"].outcome is Outcome.PASS


def test_a_stranger_in_a_quorum() -> None:
    members = ("leftover-0", "replica-0", "replica-1", "replica-2")
    story = lost_and_back().alter(about(events.Quorum, quorum_id=3), members=members)
    findings, broken = judge_live(story)
    found = findings["one_quorum"]
    assert broken["one_quorum"] == found.evidence[0], "a live run must stop at once"
    assert found.outcome is Outcome.FAIL
    assert found.reading == "quorum 3 took in leftover-0, which is not of this job; 2 more such"
    assert story.journal()[found.evidence[0]].members == members


def test_unknown_members_are_not_compared() -> None:
    story = lost_and_back().alter(about(events.Quorum, quorum_id=3), quorum_id=1, members=None)
    assert judge(story)["one_quorum"].outcome is Outcome.PASS


def test_no_commits_at_all() -> None:
    found = judge(Story().deploy().drain().end())["one_quorum"]
    assert (found.outcome, found.reading) == (Outcome.UNKNOWN, "no step was committed")


def test_lost_before_any_return_is_still_one_quorum() -> None:
    assert judge(lost().drain().end())["one_quorum"].outcome is Outcome.PASS


def test_a_member_that_its_quorum_does_not_name() -> None:
    story = lost_and_back().alter(about(events.Quorum, quorum_id=1), members=("replica-0", "replica-1"))
    findings, broken = judge_live(story)
    found = findings["one_quorum"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == "replica-2 is in quorum 1, which is replica-0 and replica-1"
    assert "one_quorum" in broken


def test_more_participants_than_the_quorum_has_members() -> None:
    story = lost_and_back().alter(about(events.Step, step=7), participants=4)
    findings, broken = judge_live(story)
    found = findings["one_quorum"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == (
        "replica-0 committed step 7 as one of 4 participants of quorum 1, which is replica-0, replica-1 and replica-2; "
        "2 more such"
    )
    assert "one_quorum" in broken
