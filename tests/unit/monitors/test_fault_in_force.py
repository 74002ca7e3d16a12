"""`fault_in_force`: without a proven fault a run proves nothing."""

from __future__ import annotations

import msgspec
from journals import STEP_S, Story, about, judge, lost_and_back, node_off_and_back, steady

from chaos.api import Action, Delete, Evict, FaultPoint, Outcome, Point, Process, Signal, events


def finding(story: Story):
    return judge(story)["fault_in_force"]


def test_measures_of_a_fault_in_force() -> None:
    found = finding(lost_and_back())
    assert found.reading == "pod.kill of replica-1: in force, proven within 20 ms of the decision"
    assert found.measures == {"faults_planned": 1, "faults_in_force": 1, "latency_s": 0.02}
    story = lost_and_back()
    (proof,) = [event.seq for event in story.journal() if isinstance(event, events.InjectionInForce)]
    assert found.evidence == (proof,)


def test_no_fault_planned() -> None:
    assert finding(steady()).reading == "no fault was planned"
    assert finding(steady()).measures == {"faults_planned": 0, "faults_in_force": 0, "latency_s": None}


def test_a_missed_trigger() -> None:
    story = lost_and_back().drop(about(events.FaultStarted)).drop(about(events.InjectionInForce))
    story.now_s = 12.0
    found = finding(story.say(events.FaultMissed, "runner", fault_id="fault-0", reason="step 900 was not reached"))
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == "fault-0 (pod.kill of replica-1) was not in force: step 900 was not reached"
    assert found.measures["faults_in_force"] == 0


def test_a_refused_injection() -> None:
    story = lost_and_back().drop(about(events.InjectionInForce))
    story.now_s = 12.0
    injection = story.faults[0].injections[0]
    found = finding(story.say(events.InjectionFailed, "runner", fault_id="fault-0", injection=injection, reason="gone"))
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == "fault-0 (pod.kill of replica-1) was not in force: gone"


def test_a_fault_that_never_started() -> None:
    found = finding(lost_and_back().drop(about(events.FaultStarted)).drop(about(events.InjectionInForce)))
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == "fault-0 (pod.kill of replica-1) was never started"


def test_one_injection_of_two_unproven() -> None:
    story = Story().deploy().train(12).kill("replica-1", "replica-2").train(5).drain().end()
    second = story.faults[0].injections[1]
    found = finding(story.drop(about(events.InjectionInForce, injection=second)))
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading.endswith("was started, but 1 injection of it never proven in force")


def test_a_victim_that_trains_on_was_not_killed() -> None:
    story = lost_and_back()
    (hit,) = [event for event in story.told if isinstance(event, events.InjectionInForce)]
    story.now_s, story.group, story.step, story.quorum_id = hit.t_s, {"replica-1"}, 12, 1
    story.incarnation["replica-1"] = 1
    story.wait(STEP_S).discard()
    found = finding(story)
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading.endswith("was not in force: replica-1 was called dead and tried step 13 afterwards")


def test_a_member_of_a_dead_node_that_trains_on() -> None:
    story = node_off_and_back()
    (hit,) = [event for event in story.told if isinstance(event, events.InjectionInForce)]
    story.now_s, story.group, story.step, story.quorum_id = hit.t_s, {"replica-3"}, 12, 1
    story.incarnation["replica-3"] = 1
    found = finding(story.wait(STEP_S).discard())
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading.endswith("was not in force: replica-3 was called dead and tried step 13 afterwards")


def test_a_death_that_is_proven_when_the_next_trainer_of_the_pod_is_there() -> None:
    story = Story().deploy().train(12).phase("disturb").wait(0.1)
    story.group.discard("replica-1")
    decided_s = story.now_s
    story.strike("process.kill", Signal("replica-1", Process.TRAINER, 9)).phase("quiesce")
    story.wait(0.5).discard().regroup().train(1).build("replica-1").wait(0.1)
    story.alter(about(events.InjectionInForce), t_s=story.now_s, latency_s=story.now_s - decided_s)
    story.wait(0.1).join("replica-1").train(10).drain().end()
    assert finding(story).outcome is Outcome.PASS
    assert judge(story)["replicas_rejoin"].outcome is Outcome.PASS


def test_proof_of_another_than_the_target() -> None:
    story = lost_and_back()
    (hit,) = [event for event in story.told if isinstance(event, events.InjectionInForce)]
    other = msgspec.structs.replace(hit.proof, member="replica-2")
    found = finding(story.alter(about(events.InjectionInForce), proof=other))
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == (
        "fault-0 (pod.kill of replica-1) was not in force: replica-2 was read back in the place of replica-1"
    )


def test_what_was_not_planned_proves_nothing() -> None:
    story = lost_and_back()
    (fault,) = story.faults
    story.faults = [msgspec.structs.replace(fault, targets=("replica-2",), injections=(Delete("replica-2"),))]
    assert finding(story).reading.endswith("was aimed at others than planned, which is replica-2")
    story.faults = [msgspec.structs.replace(fault, injections=(Evict("replica-1", 3.0),))]
    assert finding(story).reading.endswith("was made of other injections than planned")
    assert finding(story).outcome is Outcome.UNKNOWN
    story.faults = [msgspec.structs.replace(fault, role="donor", targets=(), injections=())]
    assert finding(story).outcome is Outcome.PASS


def test_a_fault_before_the_job_was_healthy() -> None:
    story = Story().deploy().train(12).kill("replica-1").wait(0.1).phase("disturb").train(5)
    found = finding(story.drain().end())
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading.endswith("was started before the job was seen to be healthy")


def ordered() -> Story:
    story = Story().deploy().train(12)
    order = FaultPoint("replica-1", Point.BEFORE_ALLREDUCE, Action.NAN, times=1)
    return story.strike("gradient.nan", order, removes=False)


def struck(story: Story, action: str = "nan", after_s: float = 0.0) -> Story:
    fields = {"order": "fault-0.1", "point": "before_allreduce", "action": action, "step": 13}
    return story.say(events.FaultPointHit, "replica-1", after_s, **fields)


def test_an_order_that_was_carried_out() -> None:
    """Perhaps before the proof that the trainer has it."""
    for after_s in (0.3, -0.01):
        assert finding(struck(ordered(), after_s=after_s).train(2).release().drain().end()).outcome is Outcome.PASS


def test_an_order_at_a_point_that_was_never_reached() -> None:
    for story in (ordered(), struck(ordered(), "delay"), struck(ordered(), after_s=-5.0)):
        found = finding(story.train(2).release().drain().end())
        assert found.outcome is Outcome.UNKNOWN
        assert found.reading == (
            "fault-0 (gradient.nan of replica-1) was ordered, but replica-1 never came to before_allreduce"
        )
