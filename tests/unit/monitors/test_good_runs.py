"""Runs in which all went well pass every monitor, at every size and in every order of arrival; cut short, none does."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import (
    MONITORS,
    Story,
    about,
    failing,
    frozen_and_back,
    jittered,
    judge,
    judge_live,
    lost,
    lost_and_back,
    node_off_and_back,
    outcomes,
    slowed,
    steady,
)

from chaos.api import Outcome, events

ALL_PASS = {monitor.name: Outcome.PASS for monitor in MONITORS}


RUNS = (steady, lost_and_back, frozen_and_back, node_off_and_back, slowed)


@pytest.mark.parametrize("replicas", [2, 3, 64])
@pytest.mark.parametrize("run", RUNS)
def test_a_good_run_passes(run, replicas: int) -> None:
    findings, broken = judge_live(run(replicas))
    assert outcomes(findings) == ALL_PASS
    assert not broken


def test_a_killed_trainer_process_passes_like_a_killed_pod() -> None:
    story = Story().deploy().train(12).kill("replica-0", process=True).wait(1.0).discard().regroup().train(5)
    story.restart("replica-0").train(9).build("replica-0").join("replica-0").train(10)
    assert outcomes(judge(story.drain().end())) == ALL_PASS


def test_every_replica_in_turn_may_be_hit() -> None:
    story = Story().deploy().train(12)
    for member in story.replicas:
        story.kill(member).wait(1.0).discard().regroup().train(5)
        story.restart(member).train(5).build(member).join(member).train(5)
    assert outcomes(judge(story.drain().end())) == ALL_PASS


def test_a_restarted_lighthouse_is_nobodys_loss() -> None:
    story = Story().deploy().train(12).kill("lighthouse").restart("lighthouse")
    story.say(events.LighthouseStarted, "lighthouse").train(10)
    findings = judge(story.drain().end())
    assert outcomes(findings) == ALL_PASS
    assert findings["replicas_rejoin"].reading == "no replica was hit, none had to come back"


def test_a_job_that_trains_all_its_steps_before_drain_passes() -> None:
    story = lost().restart("replica-1").train(9).build("replica-1").join("replica-1").train(10)
    for member in story.replicas:
        story.say(events.TrainerFinished, member, 0.1, step=story.step, reason="steps_reached")
        story.say(events.MemberExited, member, 0.2, status=0)
    story.say(events.MemberExited, "controller", 0.3, status=0).say(events.MemberExited, "lighthouse", 0.4, status=-15)
    assert outcomes(judge(story.wait(90.0).phase("drain").end())) == ALL_PASS


def test_drain_counts_against_nobody() -> None:
    """Steps of stopping trainers, deaths and losses after drain began."""
    story = lost_and_back().drop(about(events.RunEnded))
    story.say(events.TrainerFailed, "replica-0", error="RuntimeError: connection closed")
    story.say(events.MemberExited, "replica-2", status=-9).say(events.EventsLost, "replica-2", reason="stream closed")
    story.wait(100.0).quorum_id += 1
    story.say(
        events.Step,
        "replica-0",
        **{"step": 39, "committed": True, "quorum_id": story.quorum_id, "participants": 1, "healing": False},
        **{"tokens": 8, "lr": 0.1, "duration_s": 0.1, "digest": "other"},
    )
    assert outcomes(judge(story.end())) == ALL_PASS


def test_what_the_controller_and_donors_say_changes_nothing() -> None:
    story = lost_and_back()
    story.now_s = 8.0
    story.say(events.ControllerStarted, "controller", replicas=3)
    story.say(events.MemberAttached, "controller", name="replica-1", member_incarnation=1, address="a", attach_s=0.1)
    story.say(events.TrainerSpawned, "controller", name="replica-1", member_incarnation=1, spawn_s=5.0)
    story.say(events.AttachFailed, "controller", name="replica-1", member_incarnation=1, attempt=1, error="refused")
    story.say(events.MemberLost, "controller", name="replica-1", member_incarnation=1, reason="connection closed")
    story.say(events.HealServed, "replica-0", step=12)
    assert outcomes(judge(story)) == ALL_PASS


@pytest.mark.parametrize("factor", [0.1, 5.0])
def test_a_faster_or_slower_machine_changes_nothing(factor: float) -> None:
    story = lost_and_back()
    story.told = [msgspec.structs.replace(event, t_s=event.t_s * factor) for event in story.told]
    assert outcomes(judge(story)) == ALL_PASS


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    late_s_max=st.floats(0.0, 1.0),
    replicas=st.sampled_from([2, 3, 5]),
    run=st.sampled_from(RUNS),
)
def test_late_arrival_of_members_events_changes_nothing(seed: int, late_s_max: float, replicas: int, run) -> None:
    story = run(replicas)
    findings, broken = judge_live(jittered(story.journal(), seed, late_s_max), story.plan)
    assert outcomes(findings) == ALL_PASS
    assert not broken


@settings(max_examples=60)
@given(data=st.data(), run=st.sampled_from([lost_and_back(2), *(run() for run in RUNS)]))
def test_a_journal_cut_short_is_never_a_pass_and_never_a_fail(data: st.DataObject, run: Story) -> None:
    told = run.journal()
    kept = told[: data.draw(st.integers(0, len(told) - 1), label="events kept")]
    findings = judge(kept, run.plan)
    assert set(outcomes(findings).values()) == {Outcome.UNKNOWN}


def test_a_run_that_was_broken_off_is_never_a_pass() -> None:
    findings = judge(lost_and_back().alter(about(events.RunEnded), completed=False, reason="interrupted"))
    assert set(outcomes(findings).values()) == {Outcome.UNKNOWN}
    assert findings["one_quorum"].reading == "the run was broken off (interrupted)"


def test_a_run_that_safety_ended_early_is_unknown_to_the_others() -> None:
    story = lost_and_back().say(events.SafetyBroken, "runner", monitor="same_state", reading="differs")
    findings = judge(story)
    assert set(outcomes(findings).values()) == {Outcome.UNKNOWN}
    assert findings["progress"].reading == "same_state broke and ended the run early"


@pytest.mark.parametrize("member", ["replica-0", "replica-1", "replica-2"])
def test_an_unreadable_event_of_a_replica_is_a_blind_spot(member: str) -> None:
    story = lost_and_back()
    story.now_s = 10.0
    findings = judge(story.say(events.Unknown, member, of_kind="step", data={}))
    assert not failing(findings)
    for name in ("one_quorum", "same_state", "progress", "survivors_continue", "no_collateral"):
        assert findings[name].outcome is Outcome.UNKNOWN, name
        assert findings[name].reading == f"{member} told of 'step', which this version cannot read"


def test_lost_events_of_a_replica_are_a_blind_spot() -> None:
    story = lost_and_back()
    story.now_s = 10.0
    findings = judge(story.say(events.EventsLost, "replica-2", reason="stream closed", count=3))
    assert not failing(findings)
    assert findings["same_state"].reading == "3 events of replica-2 did not arrive (stream closed)"
    assert findings["same_state"].outcome is Outcome.UNKNOWN
    assert findings["replicas_rejoin"].outcome is Outcome.PASS, "its proof is complete without them"


def test_a_loss_noticed_at_the_first_word_in_drain_may_reach_back() -> None:
    story = lost_and_back()
    story.now_s -= 0.6
    findings = judge(story.say(events.EventsLost, "replica-2", reason="seq jumps from 40 to 43", count=2))
    assert findings["same_state"].outcome is Outcome.UNKNOWN
    assert findings["same_state"].reading == "2 events of replica-2 did not arrive (seq jumps from 40 to 43)"


def test_lost_events_of_the_controller_matter_to_no_collateral_only() -> None:
    story = lost_and_back()
    story.now_s = 10.0
    findings = judge(story.say(events.EventsLost, "controller", reason="stream closed"))
    assert {n for n, f in findings.items() if f.outcome is not Outcome.PASS} == {"no_collateral"}


def test_an_empty_journal_is_unknown() -> None:
    assert set(outcomes(judge([], steady().plan)).values()) == {Outcome.UNKNOWN}
