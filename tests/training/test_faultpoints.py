"""Fault points of real trainers: what a replica does to itself, and what the others see of it.

One job for all: the tests stand in the order in which they harm it, and the last one leaves nothing to compare.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from realjob import Event, Run, hit, ordered, running

from training.checkpoints import Checkpoints

JOB = ("--replicas", "3", "--steps", "5000", "--set", "warmup_steps=500", "--set", "checkpoint_every=4")
JOB += ("--set", "silence_s=0", "--set", "hang_s=0")  # what TorchFT makes of each, without the controller's help
MEMBERS = ("replica-0", "replica-1", "replica-2")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with running(tmp_path_factory.mktemp("job"), *JOB) as run:
        for member in MEMBERS:
            run.until(lambda event, member=member: full_step(event, member, above=0))
        yield run


def tried(job: Run, struck: Event, member: str | None = None) -> Event:
    """How the struck step ended, at the struck member or another one."""
    who = member or struck["member"]
    return job.until(
        lambda event: (
            (event["kind"], event["member"]) == ("step", who)
            and event["step"] == struck["step"]
            and event["mono_s"] > struck["mono_s"]
        )
    )


def full_step(event: Event, member: str, above: int) -> bool:
    """A later update that a member committed with all three."""
    return (
        (event["kind"], event["member"]) == ("step", member)
        and event["committed"]
        and not event["healing"]
        and event["participants"] == 3
        and event["step"] > above
    )


def all_go_on(job: Run, struck: Event) -> int:
    """The first update after the struck one that all three committed together, with one state."""
    last = [
        job.until(lambda event, member=member: full_step(event, member, struck["step"]) and later(event, struck))
        for member in MEMBERS
    ]
    step = max(event["step"] for event in last)
    for member in MEMBERS:
        job.until(lambda event, member=member: full_step(event, member, above=step - 1))
    assert len({event["digest"] for event in job.steps(step=step, committed=True)}) == 1
    return int(step)


def later(event: Event, than: Event) -> bool:
    return bool(event["mono_s"] > than["mono_s"])


def test_a_slow_replica_makes_the_others_wait_and_nobody_leaves(job: Run) -> None:
    with ordered(job, "replica-1", "in_forward", "delay", delay_s=2.0, times=1) as order:
        struck = hit(job, order)
        steps = [tried(job, struck, member) for member in MEMBERS]
    assert all(event["committed"] and event["participants"] == 3 for event in steps)
    assert all(event["mono_s"] - struck["mono_s"] >= 2.0 for event in steps)


def test_a_held_lock_stops_python_but_not_the_heartbeats(job: Run) -> None:
    """Twice the heartbeat timeout: had they stopped, there would be a quorum without it."""
    with ordered(job, "replica-2", "in_forward", "hold_gil", delay_s=2.0, times=1) as order:
        struck = hit(job, order)
        steps = [tried(job, struck, member) for member in MEMBERS]
    assert all(event["committed"] and event["participants"] == 3 for event in steps)
    assert all(event["mono_s"] - struck["mono_s"] >= 2.0 for event in steps)


def test_a_failed_exchange_is_not_committed_where_it_failed(job: Run) -> None:
    """The others notice at once that it left the exchange; the step is tried again by all three."""
    with ordered(job, "replica-0", "in_allreduce", "error", times=1) as order:
        struck = hit(job, order)
        own = tried(job, struck)
        all_go_on(job, struck)
    assert not own["committed"]
    assert own["error"] == f"Ordered: ordered to fail in allreduce, by {order}"


def test_a_replica_that_votes_otherwise_heals(job: Run) -> None:
    with ordered(job, "replica-1", "before_commit", "lie", times=1) as order:
        struck = hit(job, order)
        assert tried(job, struck)["error"] == "voted against"
        # A replica does not wait for another's vote: its step may be over before the lie is told.
        job.until_committed("replica-0", struck["step"])
        assert [event["committed"] for event in job.steps(member="replica-0", step=struck["step"])] == [True]
        healed = job.until(
            lambda event: (event["kind"], event["member"]) == ("heal_ended", "replica-1") and later(event, struck)
        )
        assert healed["step"] >= struck["step"]
        all_go_on(job, struck)


def test_a_broken_transfer_is_asked_for_again(job: Run) -> None:
    """First the receiver fails, then the donor, whose trainer goes on: both are within a step or two."""
    with (
        ordered(job, "replica-2", "in_heal", "error", times=1) as receiving,
        ordered(job, "replica-0", "in_serve", "error", times=1) as serving_0,
        ordered(job, "replica-1", "in_serve", "error", times=1) as serving_1,
        ordered(job, "replica-2", "before_commit", "lie", times=1) as lie,
    ):
        struck = hit(job, lie)
        hit(job, receiving)
        served = job.until(lambda event: event.get("order") in (serving_0, serving_1))
        assert served["kind"] == "fault_point_hit"
        all_go_on(job, struck)
    assert job.progress().differing_steps() == []


def test_a_damaged_checkpoint_is_passed_over(job: Run) -> None:
    checkpoints = Checkpoints(job.out / "scratch" / "replica-0" / "disk")
    with ordered(job, "replica-0", "in_checkpoint", "corrupt", times=1) as order:
        struck = hit(job, order)
        job.until_committed("replica-0", struck["step"] + 1)
        whole = checkpoints.newest()
    assert whole is not None
    step, state = whole
    assert step != struck["step"]
    assert state["torchft"]["step"] == step


def test_a_failed_checkpoint_does_not_stop_training(job: Run) -> None:
    with ordered(job, "replica-1", "in_checkpoint", "error", times=1) as order:
        struck = hit(job, order)
        job.until_committed("replica-1", struck["step"] + 1)
    assert f"no checkpoint of step {struck['step']}" in (job.out / "logs" / "replica-1.log").read_text()


def test_a_gradient_that_is_not_a_number_is_discarded_by_every_replica(job: Run) -> None:
    with ordered(job, "replica-1", "before_allreduce", "nan", times=1) as order:
        struck = hit(job, order)
        tries = [tried(job, struck, member) for member in MEMBERS]
        all_go_on(job, struck)
    assert not any(event["committed"] for event in tries)
    assert {event["error"] for event in tries} == {"ArithmeticError: the gradient norm is not a finite number"}


def test_a_flipped_weight_parts_the_states_from_then_on(job: Run) -> None:
    with ordered(job, "replica-2", "after_commit", "flip_weight", times=1) as order:
        struck = hit(job, order)
        for step in (struck["step"], struck["step"] + 3):
            for member in MEMBERS:
                job.until_committed(member, step)
            digests = {event["member"]: event["digest"] for event in job.steps(step=step, committed=True)}
            assert digests["replica-0"] == digests["replica-1"] != digests["replica-2"]
