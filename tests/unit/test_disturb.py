"""When a fault strikes its target and lets it go, on a cluster that only keeps count."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.check import Judges
from chaos.journal import NAME, Journal, Reading
from chaos.model.events import (
    AnyEvent,
    Event,
    FaultEnded,
    FaultPointHit,
    FaultStarted,
    InjectionFailed,
    InjectionInForce,
    InjectionReverted,
    MemberExited,
    MemberStarted,
    RevertFailed,
    TrainerStarted,
)
from chaos.model.experiment import Experiment, Trigger, WorkloadSpec
from chaos.model.injections import (
    Action,
    Delete,
    Drop,
    Evict,
    FaultPoint,
    HeldInjection,
    Injection,
    Interface,
    LinkDown,
    OneShot,
    Point,
    Proof,
)
from chaos.model.plan import Plan, PlannedFault, Rhythm
from chaos.model.ports import Hold
from chaos.model.topology import Restart, place
from chaos.model.workload import Role, Workload
from chaos.run import disturb
from chaos.run.disturb import Disturber
from chaos.run.recorder import Recorder

DOWN = LinkDown("replica-0", Interface.DATA)
TAKES_S = 0.3
ORDER = FaultPoint("replica-0", Point.IN_FORWARD, Action.ERROR)


class Counting:
    """A cluster on which nothing happens but what is asked for."""

    async def inject(self, injection: OneShot) -> Proof:
        await anyio.sleep(TAKES_S)
        return Proof(injection.member, 1, "gone")

    @asynccontextmanager
    async def hold(self, injection: HeldInjection, for_s: float = inf) -> AsyncIterator[Hold]:
        hold = Hold("order", Proof(injection.target, 1, "down"))
        yield hold
        hold.reverted = Proof(injection.target, 1, "up")

    async def stop(self) -> None: ...

    async def wait_job_over(self) -> int:
        return 0


def started(incarnation: int, member: str = "replica-0") -> MemberStarted:
    return MemberStarted(t_s=0, member=member, incarnation=incarnation, node="n", address="a", pid=1)


def trainer_started(incarnation: int) -> TrainerStarted:
    who = {"member": "replica-0", "incarnation": incarnation, "replica_id": "replica-0:1"}
    return TrainerStarted(t_s=0, pid=1, recipe="r", device="d", parameters=1, **who)


DEATH = MemberExited(t_s=0, member="replica-0", incarnation=1, status=-9)


def disturbed(
    folder: Path,
    for_s: float | None,
    rhythm: Rhythm | None = None,
    injection: Injection = DOWN,
    told: tuple[Event, ...] = (started(1),),
    later: tuple[Event, ...] = (),
    later_s: float = 1.0,
    cluster: Counting | None = None,
) -> list[AnyEvent]:
    """What the journal holds after one fault of replica-0, of which something is `told` first and something later."""
    workload = Workload(1, "a-job", 2, 1, 9, {"replica": Role(("replica-0", "replica-1"), ("run",))})
    fault = PlannedFault(
        "fault-0", "nic.flap", Trigger(seconds=0), "replica", ("replica-0",), (injection,), for_s=for_s, rhythm=rhythm,
        removes=False,
    )  # fmt: skip
    experiment = Experiment("a-run", "a test", WorkloadSpec("a-job", 2, 1, 9), {})
    plan = Plan(experiment, workload, place(workload, 1, Restart.ALWAYS), (fault,))

    async def run() -> None:
        with Journal(folder / NAME) as journal:
            recorder = Recorder(journal, Judges(plan), ())
            for event in told:
                recorder.emit(event)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(Disturber(plan, cluster or Counting(), recorder, time.monotonic).disturb, fault)
                if later:
                    await anyio.sleep(later_s)
                for event in later:
                    recorder.emit(event)

    anyio.run(run)
    return list(Reading(folder / NAME).events())


def times(told: list[AnyEvent]) -> list[float]:
    """When the link went down and up, from the first time on."""
    marks = [event.t_s for event in told if isinstance(event, InjectionInForce | InjectionReverted)]
    return [mark - marks[0] for mark in marks]


def test_without_a_rhythm_a_fault_is_held_once(tmp_path: Path) -> None:
    down, up = times(disturbed(tmp_path, 0.2))
    assert (down, up) == (0, pytest.approx(0.2, abs=0.19))


def test_with_a_rhythm_it_comes_and_goes_for_its_time(tmp_path: Path) -> None:
    told = disturbed(tmp_path, 2.0, Rhythm(period_s=0.8, duty=0.25))
    assert times(told) == pytest.approx([0, 0.2, 0.8, 1.0, 1.6, 1.8], abs=0.19)
    assert sum(isinstance(event, FaultEnded) for event in told) == 1


@settings(max_examples=20)
@given(for_s=st.floats(0.001, 0.2), period_s=st.floats(0.02, 0.3), duty=st.floats(0.1, 0.9))
def test_any_rhythm_ends_up_and_in_time(tmp_path_factory, for_s: float, period_s: float, duty: float) -> None:
    told = disturbed(tmp_path_factory.mktemp("run"), for_s, Rhythm(period_s, duty))
    kinds = [type(event) for event in told if isinstance(event, InjectionInForce | InjectionReverted)]
    assert kinds and kinds == [InjectionInForce, InjectionReverted] * (len(kinds) // 2)
    assert times(told)[-1] < for_s + 0.5


def test_it_ends_with_the_life_of_its_target(tmp_path: Path) -> None:
    told = disturbed(tmp_path, 30.0, Rhythm(period_s=0.8, duty=0.5), later=(DEATH,))
    assert times(told) == pytest.approx([0, 0.4, 0.8, 1.0], abs=0.19)


@pytest.mark.parametrize(
    ("injection", "told", "later"),
    [
        (DOWN, (started(1), DEATH), started(2)),
        (ORDER, (started(1), trainer_started(1), DEATH, started(2)), trainer_started(2)),
        (Drop("replica-0", ("replica-1",)), (started(1), trainer_started(1)), started(1, "replica-1")),
    ],
    ids=["a member", "a trainer", "a peer it is to be cut off from"],
)
def test_it_waits_for_a_target_that_is_being_born_again(tmp_path: Path, injection, told, later) -> None:
    events = disturbed(tmp_path, 0.1, injection=injection, told=told, later=(later,), later_s=0.3)
    order = [type(event) for event in events]
    assert order[order.index(FaultStarted) - 1] is type(later)
    assert len(times(events)) == 2


class Outlived(Counting):
    """A trainer that takes an order is gone at once, and another one is there."""

    @asynccontextmanager
    async def hold(self, injection: HeldInjection, for_s: float = inf) -> AsyncIterator[Hold]:
        async with super().hold(injection, for_s) as hold:
            hold.target_gone = True
            yield hold


def test_what_was_done_to_a_trainer_ends_with_it_in_order(tmp_path: Path) -> None:
    events = disturbed(tmp_path, 60.0, injection=ORDER, told=(started(1), trainer_started(1)), cluster=Outlived())
    [end] = [event for event in events if isinstance(event, InjectionReverted | RevertFailed)]
    assert isinstance(end, InjectionReverted)
    assert end.target_gone
    assert isinstance(events[-1], FaultEnded)


class Forgetful(Counting):
    """Its first order is forgotten at once."""

    def __init__(self) -> None:
        self.orders: list[Hold] = []

    @asynccontextmanager
    async def hold(self, injection: HeldInjection, for_s: float = inf) -> AsyncIterator[Hold]:
        hold = Hold(f"order-{len(self.orders)}", Proof(injection.target, 1, "armed"))
        hold.trouble = "" if self.orders else "no such order"
        self.orders.append(hold)
        yield hold


def test_a_point_is_waited_for_although_a_trainer_forgets_the_order(tmp_path: Path) -> None:
    workload = Workload(1, "a-job", 1, 1, 9, {"replica": Role(("replica-0",), ("run",))})
    at = Trigger(point=Point.IN_SERVE)
    fault = PlannedFault("fault-0", "pod.kill", at, "replica", ("replica-0",), (Delete("replica-0"),), removes=False)
    plan = Plan(
        Experiment("a-run", "a test", WorkloadSpec("a-job", 1, 1, 9), {}),
        workload,
        place(workload, 1, Restart.ALWAYS),
        (fault,),
    )

    async def run() -> None:
        with Journal(tmp_path / NAME) as journal:
            recorder = Recorder(journal, Judges(plan), ())
            recorder.emit(started(1))
            cluster = Forgetful()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(Disturber(plan, cluster, recorder, time.monotonic).disturb, fault)
                while len(cluster.orders) < 2:
                    await anyio.wait_all_tasks_blocked()
                    recorder.emit(trainer_started(1))
                hit = {"order": "order-1", "point": "in_serve", "action": "pause", "step": 1}
                recorder.emit(FaultPointHit(t_s=0, member="replica-0", incarnation=1, **hit))

    async def bounded() -> None:
        with anyio.fail_after(10.0):
            await run()

    anyio.run(bounded)
    assert any(isinstance(event, FaultStarted) for event in Reading(tmp_path / NAME).events())


@pytest.mark.parametrize(
    ("injection", "comes"), [(Delete("replica-0"), InjectionFailed), (Evict("replica-0", 10.0), InjectionInForce)]
)
def test_the_grace_of_a_target_is_not_taken_from_the_time_to_be_in_force(
    tmp_path: Path, monkeypatch, injection: OneShot, comes: type[Event]
) -> None:
    monkeypatch.setattr(disturb, "INJECT_TIMEOUT_S", TAKES_S / 10)
    (done,) = [
        e for e in disturbed(tmp_path, None, injection=injection) if isinstance(e, InjectionInForce | InjectionFailed)
    ]
    assert type(done) is comes
