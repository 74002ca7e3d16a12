"""`no_collateral`: members that no fault was aimed at live on."""

from __future__ import annotations

import pytest
from journals import (
    Story,
    about,
    failing,
    jittered,
    judge,
    judge_live,
    lost,
    lost_and_back,
    node_off_and_back,
    numbered,
    slowed,
)

from chaos.api import Drop, Outcome, Process, Signal, events


def test_measures_of_a_good_run() -> None:
    found = judge(lost_and_back())["no_collateral"]
    assert found.reading == "4 members that no fault was to take away lived on"
    assert found.measures == {"members_not_hit": 4, "members_lost": 0, "exits": 0}


def test_a_survivor_that_dies_at_the_rejoin() -> None:
    """The donor race: the healthy die when the lost one comes back."""
    story = lost().restart("replica-1").train(9).build("replica-1").join("replica-1")
    for member in ("replica-0", "replica-2"):
        story.say(events.TrainerFailed, member, 0.1, error="RuntimeError: got mixed torch.Tensor and DTensor")
        story.say(events.MemberExited, member, 0.2, status=1)
    findings, broken = judge_live(story.wait(1.0).drain().end())
    found = findings["no_collateral"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == (
        "replica-0 failed (RuntimeError: got mixed torch.Tensor and DTensor) 8.1 s after replica-1 was hit; "
        "so did replica-2"
    )
    assert found.measures == {"members_not_hit": 4, "members_lost": 2, "exits": 2}
    failed = [e.seq for e in story.journal() if isinstance(e, events.TrainerFailed)]
    assert broken["no_collateral"] == failed[0], "a live run must stop at once"


def test_what_comes_up_may_need_a_second_attempt() -> None:
    story = Story().deploy()
    at = next(index for index, event in enumerate(story.told) if isinstance(event, events.TrainerStarted))
    died = events.MemberExited(t_s=story.told[at].t_s - 1.0, member="replica-1", incarnation=1, status=0)
    story.told.insert(at, died)
    findings = judge(story.train(10).drain().end())
    assert findings["no_collateral"].outcome is Outcome.PASS


@pytest.mark.parametrize("member", ["replica-0", "replica-2", "lighthouse", "controller"])
def test_any_member_counts(member: str) -> None:
    story = lost_and_back()
    story.now_s = 12.0
    found = judge(story.say(events.MemberExited, member, status=-6))["no_collateral"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == f"{member} was ended by signal 6 0.8 s after replica-1 was hit"


def test_a_death_before_the_first_fault_is_a_finding() -> None:
    story = Story().deploy().train(6).say(events.MemberExited, "replica-1", status=1).train(6).kill("replica-1")
    found = judge(story.train(10).drain().end())["no_collateral"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == "replica-1 exited with status 1 at 8.1 s, before any fault was in force"


@pytest.mark.parametrize("kind", [events.MemberStarted, events.TrainerStarted])
def test_a_second_start_shows_a_death_that_was_not_seen(kind) -> None:
    story = lost_and_back()
    first = next(e for e in story.told if about(kind, "replica-2")(e))
    incarnation = 2 if kind is events.MemberStarted else 1
    story.told.append(type(first)(**{**{n: getattr(first, n) for n in first.__struct_fields__}, "t_s": 13.0}))
    story.alter(lambda e: e is story.told[-1], incarnation=incarnation)
    findings, broken = judge_live(story)
    assert findings["no_collateral"].outcome is Outcome.FAIL
    assert findings["no_collateral"].reading == "replica-2 was started again 1.8 s after replica-1 was hit"
    assert "no_collateral" in broken


def test_a_member_of_which_nothing_is_known_is_a_blind_spot() -> None:
    found = judge(lost_and_back().drop(lambda event: event.member == "lighthouse"))["no_collateral"]
    assert (found.outcome, found.reading) == (Outcome.UNKNOWN, "nothing was ever seen of lighthouse")


def test_a_victim_may_need_several_lives() -> None:
    story = lost().restart("replica-1").train(3).build("replica-1")
    story.say(events.MemberExited, "replica-1", status=1).restart("replica-1").train(3).build("replica-1")
    findings = judge(story.join("replica-1").train(10).drain().end())
    assert not failing(findings)
    assert findings["replicas_rejoin"].reading.endswith("it took 2 attempts")


def test_a_trainer_that_stops_by_itself_is_no_finished_job() -> None:
    story = lost_and_back()
    story.now_s = 13.0
    story.say(events.TrainerFinished, "replica-2", step=20, reason="stopped")
    found = judge(story.say(events.MemberExited, "replica-2", 0.1, status=0))["no_collateral"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == "replica-2 exited with status 0 1.9 s after replica-1 was hit"


def test_the_members_of_a_node_are_its_victims() -> None:
    found = judge(node_off_and_back())["no_collateral"]
    assert found.outcome is Outcome.PASS
    assert found.measures["members_not_hit"] == 4


def test_a_trainer_that_followed_another_one_in_its_pod_is_a_victim_of_its_node() -> None:
    kill = Signal("replica-1", Process.TRAINER, 9)
    story = Story(4).deploy().train(12).phase("disturb").strike("process.kill", kill)
    story.group.discard("replica-1")
    story.discard().regroup().train(10).build("replica-1").join("replica-1").train(5)
    story.power_off("node-1").wait(1.0).discard().regroup().train(10).release().phase("quiesce")
    for member in story.topology.on("node-1"):
        story.restart(member, "node-1").train(4).build(member).join(member).train(2)
    found = judge(story.train(10).drain().end())
    assert found["no_collateral"].outcome is Outcome.PASS
    assert found["replicas_rejoin"].outcome is Outcome.PASS


def test_a_death_on_another_node_is_collateral() -> None:
    story = node_off_and_back()
    story.now_s = 20.0
    found = judge(story.say(events.MemberExited, "replica-2", status=1))["no_collateral"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == "replica-2 exited with status 1 8.8 s after node-1 was hit"


def test_nobody_may_be_lost_over_a_fault_that_removes_nobody() -> None:
    assert judge(slowed())["no_collateral"].measures["members_not_hit"] == 5
    story = slowed()
    story.now_s = 15.0
    findings, broken = judge_live(story.say(events.MemberExited, "replica-1", status=1))
    assert findings["no_collateral"].outcome is Outcome.FAIL
    assert "no_collateral" in broken


def test_nothing_excuses_a_second_death() -> None:
    """A replica that came back and dies again died of something else than the fault."""
    story = lost().restart("replica-1").train(9).build("replica-1").join("replica-1").train(4)
    story.say(events.MemberExited, "replica-1", 0.1, status=1).wait(1.0)
    findings, broken = judge_live(story.drain().end())
    found = findings["no_collateral"]
    assert found.outcome is Outcome.FAIL
    assert found.reading.startswith("replica-1 exited with status 1")
    assert found.measures["members_lost"] == 1
    assert "no_collateral" in broken


def test_a_second_fault_excuses_a_second_death() -> None:
    story = lost().restart("replica-1").train(9).build("replica-1").join("replica-1").train(4)
    story.kill("replica-1").wait(1.0).discard().regroup().train(2).restart("replica-1").train(9)
    findings, broken = judge_live(story.build("replica-1").join("replica-1").train(9).drain().end())
    assert not failing(findings)
    assert not broken


def parted(*lost: str, targets: tuple[str, ...] = ("replica-0",), replicas: int = 2) -> Story:
    """Targets and the others cannot reach each other for a while; these are ended as cut off."""
    story = Story(replicas).deploy().train(12).phase("disturb").wait(0.1)
    others = tuple(name for name in story.replicas if name not in targets)
    story.strike("network.partition", *(Drop(target, others) for target in targets)).wait(1.5)
    for member in lost:
        story.say(events.TrainerLost, "controller", name=member, member_incarnation=1, reason="cut_off")
        story.group.discard(member)
    story.wait(0.5).discard().regroup().train(8).release().phase("quiesce").train(2)
    for member in lost:
        story.build(member).join(member)
    return story.train(10).drain().end()


@pytest.mark.parametrize(
    ("lost", "targets", "replicas"),
    [
        (("replica-0",), ("replica-0",), 2),
        (("replica-1",), ("replica-0",), 2),
        (("replica-1",), ("replica-1",), 3),
        (("replica-0",), ("replica-1", "replica-2"), 3),
        (("replica-0", "replica-3"), ("replica-1", "replica-2"), 4),
    ],
)
@pytest.mark.parametrize("late_s", [0.0, 5.0])
def test_of_two_sides_the_job_may_give_up_either(lost, targets, replicas, late_s: float) -> None:
    story = parted(*lost, targets=targets, replicas=replicas)
    findings = judge(jittered(story.journal(), 3, late_s), story.plan)
    assert {name: found for name, found in findings.items() if found.outcome is not Outcome.PASS} == {}
    assert findings["survivors_continue"].measures["gap_s"] == pytest.approx(2.5, abs=0.01)
    assert set(lost) == {member for member in story.replicas if f"{member} came" in findings["replicas_rejoin"].reading}


def test_where_each_is_cut_off_from_each_all_were_aimed_at() -> None:
    story = Story(2).deploy().train(12).phase("disturb").wait(0.1)
    story.strike("network.islands", Drop("replica-0", ("replica-1",)), Drop("replica-1", ("replica-0",))).wait(1.5)
    story.say(events.TrainerLost, "controller", name="replica-1", member_incarnation=1, reason="cut_off")
    story.group.discard("replica-1")
    story.discard().regroup().train(4).release().phase("quiesce").build("replica-1").join("replica-1").train(9)
    assert judge(story.drain().end())["no_collateral"].outcome is Outcome.PASS


def test_the_loss_may_be_told_before_the_proof() -> None:
    story = parted("replica-1")
    journal = story.journal()
    told = next(event for event in journal if isinstance(event, events.TrainerLost))
    journal.remove(told)
    journal.insert(next(at for at, e in enumerate(journal) if isinstance(e, events.InjectionInForce)), told)
    assert judge(numbered(journal), story.plan)["no_collateral"].outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("lost", "collateral"),
    [(("replica-1", "replica-2"), "replica-2"), (("replica-0", "replica-1"), "replica-0"), ((), "")],
)
def test_of_two_sides_it_gives_up_no_more_than_were_aimed_at(lost, collateral: str) -> None:
    found = judge(parted(*lost, replicas=4))["no_collateral"]
    assert (found.outcome is Outcome.FAIL, found.reading.partition(" ")[0] == collateral) == (bool(lost), bool(lost))
