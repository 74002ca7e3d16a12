"""`fault_reverted`: what was held was taken back, or the run says nothing."""

from __future__ import annotations

import msgspec
from journals import Story, about, frozen, frozen_and_back, judge, lost_and_back, node_off_and_back, steady

from chaos.api import Interface, LinkDown, Outcome, events
from chaos.check import Judges, digest
from chaos.model.verdict import Verdict

CLEAN = "`chaos clean` tells what is left on this machine"


def finding(story: Story):
    return judge(story)["fault_reverted"]


def verdict(story: Story, *monitors: str) -> Verdict:
    experiment = msgspec.structs.replace(story.plan.experiment, monitors=dict.fromkeys(monitors))
    plan = msgspec.structs.replace(story.plan, experiment=experiment)
    judges = Judges(plan)
    for event in story.alter(about(events.RunStarted), plan=digest(plan)).journal():
        judges.observe(event)
    return judges.verdict()


def test_measures_of_a_fault_taken_back() -> None:
    found = finding(frozen_and_back())
    assert found.outcome is Outcome.PASS
    assert found.reading == "1 injection undone, the last proof 20.0 ms after its time was up"
    assert found.measures == {"held": 1, "reverted": 1, "latency_s": 0.02}
    (proof,) = [event.seq for event in frozen_and_back().journal() if isinstance(event, events.InjectionReverted)]
    assert found.evidence == (proof,)


def test_nothing_is_held_by_a_kill_or_without_a_fault() -> None:
    for story in (steady(), lost_and_back()):
        assert (finding(story).outcome, finding(story).reading) == (Outcome.PASS, "nothing was held")
        assert finding(story).measures == {"held": 0, "reverted": 0, "latency_s": None}


def test_a_fault_that_is_left_behind_is_no_word_about_the_job_and_never_a_pass() -> None:
    story = frozen_and_back()
    (reverted,) = [event for event in story.told if isinstance(event, events.InjectionReverted)]
    story.drop(about(events.InjectionReverted)).now_s = reverted.t_s
    story.say(events.RevertFailed, "runner", fault_id="fault-0", injection=reverted.injection, reason="still frozen")
    found = finding(story)
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == f"fault-0 (process.freeze of replica-1) was not taken back in order: still frozen; {CLEAN}"
    assert found.measures["reverted"] == 0


def test_a_fault_of_whose_end_nothing_is_known() -> None:
    found = finding(frozen_and_back().drop(about(events.InjectionReverted)))
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == f"fault-0 (process.freeze of replica-1) was never said to be undone; {CLEAN}"


def test_a_hold_that_was_lost_and_then_undone_is_no_pass() -> None:
    story = frozen_and_back()
    (reverted,) = [event for event in story.told if isinstance(event, events.InjectionReverted)]
    story.now_s = reverted.t_s
    story.say(events.RevertFailed, "runner", fault_id="fault-0", injection=reverted.injection, reason="lease lost")
    assert finding(story).outcome is Outcome.UNKNOWN
    assert finding(story).measures["reverted"] == 1


def test_an_end_that_was_read_back_from_somebody_else() -> None:
    story = frozen_and_back()
    (end,) = [event for event in story.told if isinstance(event, events.InjectionReverted)]
    other = msgspec.structs.replace(end.proof, member="replica-0")
    found = finding(story.alter(about(events.InjectionReverted), proof=other))
    assert found.outcome is Outcome.UNKNOWN
    said = "fault-0 (process.freeze of replica-1) was held on replica-1, and replica-0 was read back as free of it"
    assert found.reading == f"{said}; {CLEAN}"


def planned(story: Story, **fields: object) -> Story:
    story.faults = [msgspec.structs.replace(fault, **fields) for fault in story.faults]
    return story


def test_a_fault_that_was_taken_back_before_its_time() -> None:
    held_s = 6.0
    assert finding(planned(frozen_and_back(), for_s=held_s)).outcome is Outcome.PASS
    found = finding(planned(frozen_and_back(), for_s=60.0))
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == "fault-0 (process.freeze of replica-1) was taken back after 6.0 s of 60"
    assert finding(planned(frozen_and_back(), for_s=60.0, follow=True)).outcome is Outcome.PASS


def test_a_fault_that_ended_with_a_trainer_whose_member_lives_ended_in_order() -> None:
    story = frozen_and_back().alter(about(events.InjectionReverted), target_gone=True)
    assert finding(planned(story, for_s=60.0)).outcome is Outcome.PASS


def test_a_fault_that_ended_with_its_target_ended_in_order() -> None:
    story = Story().deploy().train(12).freeze("replica-1").wait(1.0)
    story.say(events.MemberExited, "replica-1", status=-9).release().restart("replica-1").train(2)
    assert finding(planned(story, for_s=60.0).drain().end()).outcome is Outcome.PASS


def test_each_time_of_a_fault_that_comes_and_goes_needs_its_end() -> None:
    story = Story().deploy().train(12).strike("nic.flap", LinkDown("replica-1", Interface.DATA))
    story.wait(1.0).release().wait(1.0).hold(story.faults[0]).wait(1.0)
    assert finding(story.end()).measures == {"held": 2, "reverted": 1, "latency_s": 0.02}
    assert finding(story).reading.startswith("fault-0 (nic.flap of replica-1) was never said to be undone")
    story.drop(about(events.RunEnded)).release()
    assert finding(story.end()).outcome is Outcome.PASS


def test_an_end_that_is_missing_between_two_times_is_missed() -> None:
    story = Story().deploy().train(12).strike("nic.flap", LinkDown("replica-1", Interface.DATA))
    story.wait(1.0).hold(story.faults[0]).wait(1.0).release()
    assert finding(story.end()).reading.startswith("fault-0 (nic.flap of replica-1) was never said to be undone")


def test_a_whole_node_needs_one_proof() -> None:
    assert finding(node_off_and_back()).measures["held"] == 1


def test_it_sits_in_every_run_and_without_it_no_liveness_failure_counts() -> None:
    story = frozen().train(1).drain().end()
    assert [one.monitor for one in verdict(story).findings] == ["fault_in_force", "fault_reverted", "one_clock"]
    assert verdict(story, "replicas_rejoin").outcome is Outcome.FAIL
    story.now_s -= 1.0
    story.say(events.RevertFailed, "runner", fault_id="fault-0", injection=story.faults[0].injections[0], reason="held")
    assert verdict(story, "replicas_rejoin").outcome is Outcome.UNKNOWN
