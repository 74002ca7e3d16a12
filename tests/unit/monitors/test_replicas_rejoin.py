"""`replicas_rejoin`: a replica that was hit comes back as its peers' equal."""

from __future__ import annotations

import msgspec
import pytest
from journals import (
    Story,
    about,
    frozen,
    frozen_and_back,
    judge,
    lost,
    lost_and_back,
    node_off_and_back,
    outcomes,
    slowed,
)

from chaos.api import CpuLimit, Drain, Interface, LinkDown, MemoryLimit, Outcome, events
from chaos.monitors.replicas_rejoin import ReplicasRejoinLimits


def finding(story: Story, **limits: float):
    return judge(story, replicas_rejoin=ReplicasRejoinLimits(**limits))["replicas_rejoin"]


def test_measures_of_a_good_return() -> None:
    found = finding(lost_and_back())
    assert found.reading == (
        "replica-1 came back after 10.0 s: respawn 9.0, heal 0.8, first commit 0.2; "
        "17 steps were trained by 2 of 3 replicas"
    )
    assert found.measures == {
        "recovery_s": pytest.approx(10.001),
        "respawn_s": pytest.approx(9.0),
        "heal_s": pytest.approx(0.81),
        "first_commit_s": pytest.approx(0.191),
        "exit_s": 0.0,
        "restart_s": pytest.approx(4.51),
        "boot_s": pytest.approx(4.5),
        "join_s": pytest.approx(0.5),
        "heal_wait_s": pytest.approx(0.01),
        "transfer_s": pytest.approx(0.3),
        "steps_missed": 17,
    }
    told = lost_and_back().journal()
    kinds = [told[seq].kind for seq in found.evidence]
    assert kinds == [
        *["injection_in_force", "member_started", "trainer_started", "quorum", "heal_started", "heal_ended", "step"]
    ]


def test_the_parts_add_up() -> None:
    measures = finding(lost_and_back(64)).measures
    assert measures["respawn_s"] + measures["heal_s"] + measures["first_commit_s"] == pytest.approx(
        measures["recovery_s"]
    )


def test_a_later_heal_of_the_same_life_is_no_part_of_the_return() -> None:
    story = lost_and_back()
    story.now_s = 24.0
    story.say(events.HealStarted, "replica-1", step=34, source="replica-0")
    found = finding(story.say(events.HealEnded, "replica-1", 0.2, step=34, source="replica-0"))
    assert found.measures["heal_s"] == pytest.approx(0.81)
    assert found.measures["transfer_s"] == pytest.approx(0.3)


def test_two_returns_are_two_lines_and_the_worst_is_measured() -> None:
    story = lost().restart("replica-1").train(9).build("replica-1").join("replica-1").train(10)
    story.kill("replica-2").wait(1.0).discard().regroup().restart("replica-2").train(30).build("replica-2")
    found = finding(story.join("replica-2").train(10).drain().end())
    assert found.outcome is Outcome.PASS
    first, second = found.reading.splitlines()
    assert first.startswith("replica-1 came back after 8.5 s")
    assert second.startswith("replica-2 came back after 16.5 s")
    assert found.measures["recovery_s"] == pytest.approx(16.502)
    assert found.measures["steps_missed"] == 30


def test_the_missed_steps_may_have_been_trained_by_more_and_fewer() -> None:
    story = Story(4).deploy().train(12).kill("replica-1").wait(1.0).regroup().train(5).kill("replica-2").wait(1.0)
    story.regroup().train(5).restart("replica-1").build("replica-1").join("replica-1").train(5)
    story.restart("replica-2").build("replica-2").join("replica-2").train(5)
    first, second = finding(story.drain().end()).reading.splitlines()
    assert first.endswith("10 steps were trained by 2 to 3 of 4 replicas")
    assert second.endswith("10 steps were trained by 2 to 3 of 4 replicas")


def test_a_return_without_a_heal() -> None:
    """Nothing was trained meanwhile, and the replica had its state: there was nothing to heal."""
    story = Story(2).deploy().train(12).kill("replica-1").restart("replica-1").wait(5.0).build("replica-1")
    story.group.add("replica-1")
    found = finding(story.regroup().train(5).drain().end())
    assert found.outcome is Outcome.PASS
    assert found.measures["heal_s"] is None
    assert found.measures["first_commit_s"] == pytest.approx(0.501)
    assert found.reading == (
        "replica-1 came back after 5.5 s: respawn 5.0, heal none, first commit 0.5; no step was trained without it"
    )


def test_a_newer_trainer_in_the_same_incarnation_is_a_return() -> None:
    story = Story().deploy().train(12).kill("replica-1", process=True).drop(about(events.MemberExited))
    story.wait(1.0).discard().regroup().train(5).build("replica-1").join("replica-1").train(10)
    found = finding(story.drain().end())
    assert found.outcome is Outcome.PASS
    assert found.measures["respawn_s"] == pytest.approx(3.5)
    assert (found.measures["exit_s"], found.measures["restart_s"], found.measures["boot_s"]) == (None, None, None)


def test_too_late() -> None:
    found = finding(lost_and_back(), within_s_max=9.0)
    assert found.outcome is Outcome.FAIL
    assert found.reading == "replica-1 came back after 10.0 s only (at most 9)"


def joined(story: Story) -> Story:
    """The quorum has it, the heal never begins."""
    story.restart("replica-1").build("replica-1").join("replica-1")
    story.drop(about(events.HealStarted)).drop(about(events.HealEnded)).group.discard("replica-1")
    return story


@pytest.mark.parametrize(
    ("told", "reached"),
    [
        (lambda story: story, "no new life of it began"),
        (lambda story: story.restart("replica-1"), "its trainer was not built"),
        (lambda story: story.restart("replica-1").build("replica-1"), "it had no quorum"),
        (joined, "it had joined a quorum"),
    ],
)
def test_it_never_comes_back(told, reached: str) -> None:
    found = finding(told(lost()).train(250).drain().end())
    assert found.outcome is Outcome.FAIL
    assert found.reading == f"replica-1 did not come back: {reached}, 128.6 s after it was hit (at most 120)"


def test_it_is_still_healing() -> None:
    """The heal's host name cannot be resolved."""
    story = lost().restart("replica-1").build("replica-1").join("replica-1").drop(about(events.HealEnded))
    story.group.discard("replica-1")
    found = finding(story.train(250).drain().end())
    assert found.outcome is Outcome.FAIL
    assert found.reading.startswith("replica-1 did not come back: it was healing from replica-0, 128.6 s")


def test_its_trainer_fails_again_and_again() -> None:
    story = lost()
    for _ in range(4):
        story.restart("replica-1").train(65).build("replica-1")
        story.say(events.TrainerFailed, "replica-1", error="OSError: no address").say(
            events.MemberExited, "replica-1", status=1
        )
    found = finding(story.drain().end())
    assert found.outcome is Outcome.FAIL
    assert "its trainer failed (OSError: no address)" in found.reading


def test_the_run_stopped_waiting() -> None:
    story = lost().restart("replica-1").train(50)
    story.say(events.PhaseFailed, "runner", phase="quiesce", reason="not reached within 25 s")
    found = finding(story.drain().end())
    assert found.outcome is Outcome.FAIL
    assert found.reading.endswith("28.6 s after it was hit, when the run stopped waiting")


def test_the_run_was_broken_off_before_the_limit() -> None:
    found = finding(lost().restart("replica-1").train(50).end(completed=False))
    assert found.outcome is Outcome.UNKNOWN
    assert "28.5 s after it was hit, when the run ended" in found.reading


def test_the_run_was_broken_off_after_the_limit() -> None:
    assert finding(lost().train(250).end(completed=False)).outcome is Outcome.FAIL


def test_another_broken_property_ended_the_run() -> None:
    story = lost().train(10).say(events.SafetyBroken, "runner", monitor="same_state", reading="differs").drain().end()
    assert finding(story).outcome is Outcome.UNKNOWN


def test_the_job_was_too_short() -> None:
    story = lost().train(10)
    for member in sorted(story.group):
        story.say(events.TrainerFinished, member, 0.1, step=story.step, reason="steps_reached")
    found = finding(story.wait(1.0).phase("drain").end())
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading.endswith("when the job had trained all its steps")


def test_it_comes_back_with_another_state() -> None:
    story = lost_and_back().alter(about(events.Step, "replica-1", step=30), digest="other")
    found = finding(story)
    assert found.outcome is Outcome.FAIL
    assert found.reading.startswith("replica-1 came back with another state than its peers")
    assert story.journal()[found.evidence[-1]].step == 30


def test_the_first_due_digest_is_compared() -> None:
    """No digest was due until step 35."""
    undue = about(events.Step, "replica-1", incarnation=2)
    story = lost_and_back().alter(lambda e: undue(e) and e.step < 35, digest=None)
    found = finding(story)
    assert found.outcome is Outcome.PASS
    assert story.journal()[found.evidence[-1]].step == 35
    other = lost_and_back().alter(lambda e: undue(e) and e.step < 35, digest=None)
    assert finding(other.alter(lambda e: undue(e) and e.step == 35, digest="x")).outcome is Outcome.FAIL


def test_no_digest_to_compare_is_blindness() -> None:
    found = finding(lost_and_back().alter(about(events.Step, "replica-1", incarnation=2), digest=None))
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == "replica-1 came back after 10.0 s, but no digest of it could be compared"


def test_it_commits_alone() -> None:
    """A quorum of its own is no return."""
    story = lost()
    step, now_s = story.step, story.now_s
    story.train(250)
    story.now_s, story.group, story.step = now_s, {"replica-1"}, 0
    story.restart("replica-1").build("replica-1").regroup().train(3)
    story.now_s, story.group, story.step = now_s + 125.0, {"replica-0", "replica-2"}, step + 250
    found = finding(story.drain().end())
    assert found.outcome is Outcome.FAIL
    assert "it committed step 3, but never together with a peer" in found.reading


def test_hit_again_before_it_was_back() -> None:
    """The second hit begins the wait anew; only a wait that was too long counts against the first."""
    story = lost().restart("replica-1").train(5).build("replica-1").kill("replica-1").wait(1.0)
    story.restart("replica-1").train(9).build("replica-1").join("replica-1").train(10).drain().end()
    found = finding(story)
    assert found.outcome is Outcome.PASS
    assert found.reading.count("came back") == 1
    assert finding(story, within_s_max=5.9).outcome is Outcome.FAIL


def test_lost_events_on_the_way_back() -> None:
    story = lost_and_back()
    story.now_s = 14.0
    story.say(events.EventsLost, "replica-1", reason="stream closed", incarnation=2)
    found = finding(story)
    assert (found.outcome, found.reading) == (
        Outcome.UNKNOWN,
        "replica-1 came back, but some events of it did not arrive",
    )


def test_lost_events_instead_of_a_return() -> None:
    story = lost().train(5).say(events.EventsLost, "replica-1", reason="stream closed").train(250).drain().end()
    found = finding(story)
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading.endswith("but events of it did not arrive")


def test_a_planned_hit_that_did_not_take_place() -> None:
    found = finding(lost_and_back().drop(about(events.InjectionInForce)))
    assert (found.outcome, found.reading) == (Outcome.UNKNOWN, "no replica was hit, though it was planned")


def test_a_frozen_replica_comes_back_in_the_same_life() -> None:
    found = finding(frozen_and_back())
    assert found.outcome is Outcome.PASS
    assert found.reading == (
        "replica-1 came back 1.0 s after the fault's end, in the same life: heal 0.8, first commit 0.2; "
        "11 steps were trained by 2 of 3 replicas"
    )
    assert found.measures == {
        "recovery_s": pytest.approx(1.001),
        "respawn_s": None,
        "heal_s": pytest.approx(0.81),
        "first_commit_s": pytest.approx(0.191),
        "exit_s": None,
        "restart_s": None,
        "boot_s": None,
        "join_s": pytest.approx(0.5),
        "heal_wait_s": pytest.approx(0.01),
        "transfer_s": pytest.approx(0.3),
        "steps_missed": 11,
    }
    told = frozen_and_back().journal()
    kinds = [told[seq].kind for seq in found.evidence]
    assert kinds == ["injection_in_force", "injection_reverted", "quorum", "heal_started", "heal_ended", "step"]


def test_a_step_that_is_finished_on_waking_is_no_return() -> None:
    story = Story().deploy().train(11).freeze("replica-1").train(1)
    of_a_peer = next(event for event in reversed(story.told) if isinstance(event, events.Step))
    story.regroup().train(10).release()
    story.told.append(msgspec.structs.replace(of_a_peer, member="replica-1", t_s=story.now_s))
    found = finding(story.train(1).join("replica-1").train(10).drain().end())
    assert found.outcome is Outcome.PASS
    assert found.measures["steps_missed"] == 11
    assert found.measures["recovery_s"] == pytest.approx(1.0, abs=0.05)


def test_the_wait_of_a_held_fault_begins_with_its_end() -> None:
    assert finding(frozen_and_back(), within_s_max=1.1).outcome is Outcome.PASS
    late = finding(frozen_and_back(), within_s_max=0.9)
    assert late.outcome is Outcome.FAIL
    assert late.reading == "replica-1 came back 1.0 s after the fault's end only (at most 0.9)"


def test_a_replica_that_never_left_is_back_with_its_next_commit() -> None:
    story = Story().deploy().train(12).strike("nic.down", LinkDown("replica-1", Interface.CONTROL)).train(6).release()
    found = finding(story.train(5).drain().end())
    assert found.outcome is Outcome.PASS
    assert found.reading == (
        "replica-1 came back 0.5 s after the fault's end, in the same life: heal none, first commit 0.5; "
        "no step was trained without it"
    )


def test_a_commit_under_a_fault_is_no_return() -> None:
    """It trains on while the fault is held, and never again after its end."""
    story = Story().deploy().train(12).strike("nic.down", LinkDown("replica-1", Interface.CONTROL)).train(6).release()
    story.group.discard("replica-1")
    found = finding(story.regroup().train(250).drain().end())
    assert found.outcome is Outcome.FAIL
    assert found.reading == (
        "replica-1 did not come back: it committed nothing, 125.1 s after the end of its fault (at most 120)"
    )


def test_a_frozen_replica_that_comes_back_with_its_old_state() -> None:
    story = frozen_and_back().alter(about(events.Step, "replica-1", step=24), digest="old")
    found = finding(story)
    assert found.outcome is Outcome.FAIL
    assert found.reading.startswith("replica-1 came back with another state than its peers")


def test_a_frozen_replica_may_die_of_it_and_come_back_in_a_new_life() -> None:
    story = frozen().say(events.MemberExited, "replica-1", 0.5, status=-9).train(2).restart("replica-1")
    findings = judge(story.train(4).build("replica-1").join("replica-1").train(10).drain().end())
    assert outcomes(findings)["replicas_rejoin"] is Outcome.PASS
    assert findings["replicas_rejoin"].reading.startswith(
        "replica-1 came back 3.5 s after the fault's end: respawn 3.0, heal 0.3, first commit 0.2;"
    )
    assert outcomes(findings)["no_collateral"] is Outcome.PASS


def test_a_replica_that_dies_under_its_fault_is_due_from_then_on() -> None:
    """Memory runs short, the kernel kills, and the hold ends with the life it was on."""
    story = Story().deploy().train(12).strike("process.oom", MemoryLimit("replica-1", share_of_used=0.5, kill=True))
    story.train(4).say(events.MemberExited, "replica-1", status=-9).group.discard("replica-1")
    story.release().wait(1.0).discard().regroup().train(2).restart("replica-1").train(4).build("replica-1")
    found = finding(story.join("replica-1").train(10).drain().end())
    assert found.outcome is Outcome.PASS
    assert found.measures["recovery_s"] == pytest.approx(4.501)


def test_the_run_ends_before_the_fault() -> None:
    found = finding(frozen().drop(about(events.InjectionReverted)).train(4).drain().end())
    assert (found.outcome, found.reading) == (
        Outcome.UNKNOWN,
        "replica-1 was still under its fault when the run ended",
    )


def test_all_replicas_of_a_node_come_back_after_its_end() -> None:
    found = finding(node_off_and_back())
    assert found.outcome is Outcome.PASS
    first, second = found.reading.splitlines()
    assert first.startswith("replica-1 came back 2.5 s after the fault's end: respawn 2.0, heal 0.3")
    assert second.startswith("replica-3 came back 5.5 s after the fault's end: respawn 5.0, heal 0.3")
    assert found.measures["restart_s"] == pytest.approx(3.0)


def test_one_of_a_node_that_stays_away() -> None:
    story = Story(4).deploy().train(12).power_off("node-1").wait(1.0).regroup().train(5).release()
    story.restart("replica-1", "node-1").build("replica-1").join("replica-1").train(250)
    found = finding(story.drain().end())
    assert found.outcome is Outcome.FAIL
    assert found.reading.startswith(
        "replica-3 did not come back: no new life of it began, 125.1 s after the end of its"
    )


def test_a_drained_replica_comes_back_elsewhere_before_the_end() -> None:
    """Its way back counts from the beginning."""
    story = Story(3).deploy().train(12).say(events.MemberExited, "replica-1", 0.01, status=0)
    story.group.discard("replica-1")
    story.strike("node.drain", Drain("node-1")).train(1)
    story.regroup().restart("replica-1", "node-0").train(4).build("replica-1").join("replica-1").train(10).release()
    findings = judge(story.train(10).drain().end())
    assert set(outcomes(findings).values()) == {Outcome.PASS}
    assert findings["replicas_rejoin"].reading.startswith("replica-1 came back after 3.0 s: respawn 2.5, heal 0.3")


def test_a_fault_that_removes_nobody_asks_for_no_return() -> None:
    found = finding(slowed())
    assert (found.outcome, found.reading) == (Outcome.PASS, "no replica was hit, none had to come back")


def test_a_flapping_nic_is_one_fault_that_ends_with_its_last_time() -> None:
    story = Story().deploy().train(12).strike("nic.flap", LinkDown("replica-1", Interface.DATA)).train(1).release()
    story.train(2).hold(story.faults[0]).train(1).release().train(10)
    found = finding(story.drain().end())
    assert found.outcome is Outcome.PASS
    assert found.reading.count("came back") == 1
    assert found.measures["recovery_s"] == pytest.approx(0.501)


def test_killed_while_frozen() -> None:
    """The kill is the hit that counts; the frozen life cannot come back any more."""
    story = Story().deploy().train(12).freeze("replica-1").wait(1.0).regroup().train(2).kill("replica-1")
    story.release(story.faults[0]).restart("replica-1").train(4).build("replica-1").join("replica-1").train(10)
    found = finding(story.drain().end())
    assert found.outcome is Outcome.PASS
    assert found.reading.count("came back") == 1


def test_a_flapping_nic_that_is_down_at_the_end_is_still_under_its_fault() -> None:
    story = Story().deploy().train(12).strike("nic.flap", LinkDown("replica-1", Interface.DATA)).train(1).release()
    found = finding(story.train(2).hold(story.faults[0]).train(4).drain().end())
    assert (found.outcome, found.reading) == (
        Outcome.UNKNOWN,
        "replica-1 was still under its fault when the run ended",
    )


def test_a_replica_of_a_dead_node_may_be_back_elsewhere_before_that_node_is() -> None:
    story = Story(4).deploy().train(12).power_off("node-1").wait(1.0).regroup().train(2)
    for member in ("replica-1", "replica-3"):
        story.restart(member, "node-0").build(member).join(member).train(2)
    found = finding(story.release().train(10).drain().end())
    assert found.outcome is Outcome.PASS
    assert found.measures["recovery_s"] == pytest.approx(3.503)


def test_being_slowed_is_no_excuse_for_staying_away() -> None:
    story = lost().strike("cpu.starve", CpuLimit("replica-1", 0.2), removes=False).train(20).release()
    assert finding(story.train(230).drain().end()).outcome is Outcome.FAIL


def test_a_heal_before_the_fault_is_no_part_of_the_return() -> None:
    story = Story().deploy().say(events.HealStarted, "replica-1", 0.1, step=0, source="replica-0")
    story.say(events.HealEnded, "replica-1", 0.2, step=0, source="replica-0").train(12)
    story.strike("nic.down", LinkDown("replica-1", Interface.CONTROL)).train(6).release()
    found = finding(story.train(5).drain().end())
    assert (found.measures["heal_s"], found.measures["transfer_s"]) == (None, None)


def test_steps_that_cannot_be_are_not_counted_down() -> None:
    story = lost_and_back()
    told = story.journal()
    healed = next(event.seq for event in told if isinstance(event, events.HealEnded))
    absurd = [
        msgspec.structs.replace(event, step=event.step + 2**70)
        if isinstance(event, events.Step) and event.seq > healed
        else event
        for event in told
    ]
    assert judge(absurd, story.plan)["replicas_rejoin"].measures["steps_missed"] == 0
