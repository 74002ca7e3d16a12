"""Disturbs: takes one planned fault from its trigger to the proof that nothing of it is left.

Waits for the trigger, for a target and for the quorum floor; makes the injections; keeps what is held for its time.
The journal gets each of these as an event. Undoing is the platform's work and happens however the wait ends.
"""

from __future__ import annotations

import enum
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Any

import anyio
from anyio.abc import TaskGroup

from chaos.model.aim import MOMENT_ROLES, draw
from chaos.model.events import (
    AnyEvent,
    FaultEnded,
    FaultMissed,
    FaultPointHit,
    FaultStarted,
    HealEnded,
    HealStarted,
    InjectionFailed,
    InjectionInForce,
    InjectionReverted,
    MemberExited,
    Quorum,
    RevertFailed,
)
from chaos.model.experiment import On
from chaos.model.history import Activity, History
from chaos.model.injections import (
    Action,
    Delete,
    Drop,
    FaultPoint,
    Held,
    HeldInjection,
    Injection,
    Launch,
    OneShot,
    Point,
    Process,
    Proof,
    Signal,
)
from chaos.model.plan import Plan, PlannedFault
from chaos.model.ports import Cluster, Hold, InjectionRefused
from chaos.plan import aimed
from chaos.run.recorder import RUNNER, Recorder

INJECT_TIMEOUT_S = 30.0

_EVENTS = {
    On.QUORUM_CHANGE: Quorum,
    On.HEAL_STARTED: HealStarted,
    On.HEAL_ENDED: HealEnded,
    On.MEMBER_LOST: MemberExited,
}


class _End(enum.Enum):
    """What ended one hold."""

    TIME_UP = enum.auto()
    TARGET_DIED = enum.auto()
    LOST = enum.auto()


@dataclass
class _Stay:
    """The time that a held injection stays, counted from when it was first in force."""

    for_s: float
    tried: anyio.Event
    _ends_mono_s: float | None = None

    def begin(self) -> None:
        if self._ends_mono_s is None:
            self._ends_mono_s = time.monotonic() + self.for_s
        self.tried.set()

    def left_s(self) -> float:
        return self.for_s if self._ends_mono_s is None else max(0.0, self._ends_mono_s - time.monotonic())


class Disturber:
    """Makes the faults of one plan on one cluster; `clock` is the run's, in seconds."""

    def __init__(self, plan: Plan, cluster: Cluster, recorder: Recorder, clock: Callable[[], float]) -> None:
        self._plan = plan
        self._cluster = cluster
        self._recorder = recorder
        self._clock = clock

    async def disturb(self, fault: PlannedFault) -> None:
        """From the trigger to the end of the fault."""
        async with anyio.create_task_group() as held, _until_here() as paused:
            timeout_s = self._plan.experiment.disturb_timeout_s
            with anyio.move_on_after(timeout_s) as waiting:
                trigger, reached_by = await self._triggered(fault, paused)
                await anyio.sleep(fault.after_s)
                targets, injections = await self._aimed(fault, reached_by)
            if waiting.cancelled_caught:
                reason = f"its trigger, target or quorum floor was not met within {timeout_s:.0f} s"
                self._recorder.emit(FaultMissed(**self._own(fault), reason=reason))
                return
            self._recorder.emit(
                FaultStarted(
                    **self._own(fault),
                    fault=fault.fault,
                    targets=targets,
                    trigger=trigger,
                    injections=injections,
                    removes=fault.removes,
                )
            )
            for injection in injections:
                if isinstance(injection, Held):
                    tried = anyio.Event()
                    held.start_soon(self._keep, fault, injection, tried)
                    await tried.wait()
                else:
                    await self._inject(fault, injection)
        self._recorder.emit(FaultEnded(**self._own(fault)))

    async def _triggered(self, fault: PlannedFault, paused: TaskGroup) -> tuple[str, str | None]:
        """Wait for the trigger: what met it, and for a point the member that reached it and stays there."""
        at = fault.at
        if at.step is not None:
            step = at.step
            await self._recorder.until(lambda history: history.frontier >= step)
            return f"step {self._recorder.history.frontier} committed", None
        if at.seconds is not None:
            await anyio.sleep(at.seconds)
            return f"{at.seconds:g} s after the baseline", None
        if at.event is not None:
            kind = _EVENTS[at.event]
            event = await self._recorder.next(lambda event: isinstance(event, kind))
            return f"{at.event.value.replace('_', ' ')} of {event.member}", None
        assert at.point is not None
        return await self._at_point(at.point, paused)

    async def _at_point(self, point: Point, paused: TaskGroup) -> tuple[str, str]:
        """Wait until a trainer stands at the point; it stays there until `paused` is over."""
        orders: set[str] = set()
        standing: dict[str, str] = {}
        met = anyio.Event()

        def see(event: AnyEvent, history: History) -> None:
            if isinstance(event, FaultPointHit):
                standing[event.order] = event.member
                compare()

        def compare() -> None:
            """An order and its hit may become known in either order."""
            if orders & standing.keys():
                met.set()

        async def pause(replica: str) -> None:
            """Whoever is away reaches no point; who is back may, and so may one whose trainer forgot the order."""
            while True:
                with suppress(InjectionRefused):
                    async with self._cluster.hold(FaultPoint(replica, point, Action.PAUSE, times=1)) as hold:
                        orders.add(hold.order)
                        compare()
                        await self._recorder.until(
                            lambda history: hold.ended or history.over(replica, hold.proof.incarnation)
                        )
                await self._recorder.next(lambda event: event.member == replica)

        with self._recorder.watching(see):
            for replica in self._recorder.history.replicas:
                paused.start_soon(pause, replica.name)
            await met.wait()
        member = next(standing[order] for order in standing if order in orders)
        return f"{member} at {point.value}", member

    async def _aimed(
        self, fault: PlannedFault, reached_by: str | None
    ) -> tuple[tuple[str, ...], tuple[Injection, ...]]:
        """Who is hit, as planned or by the roles of the moment, and how; once they are there and the floor allows."""
        targets = fault.targets
        if fault.role == "at_point":
            assert reached_by is not None
            targets = (reached_by,)
        elif fault.role in MOMENT_ROLES:
            await self._recorder.until(lambda history: len(history.holders(fault.role)) > 0)
            chance = random.Random(f"{self._plan.experiment.seed}/{fault.id}")
            targets = draw(self._recorder.history.holders(fault.role), fault.hits, chance)
        injections = fault.injections or aimed(fault.fault, fault.args, targets, self._plan.topology)
        floor = self._plan.quorum_floor if fault.removes else 0
        await self._recorder.until(
            lambda history: _left(history, targets) >= floor and all(_can_strike(one, history) for one in injections)
        )
        return targets, injections

    async def _inject(self, fault: PlannedFault, injection: OneShot) -> None:
        decided_s = self._clock()
        try:
            with anyio.fail_after(_patience_s(injection)):
                proof = await self._cluster.inject(injection)
        except (InjectionRefused, TimeoutError) as error:
            self._failed(fault, injection, error)
            return
        self._in_force(fault, injection, proof, decided_s)

    async def _keep(self, fault: PlannedFault, injection: HeldInjection, tried: anyio.Event) -> None:
        """Hold an injection for its time, or on and off in the fault's rhythm; `tried` is set once it has come to be.

        It ends with the life of its target, or goes on with the next one if the fault follows.
        """
        assert fault.for_s is not None
        stay = _Stay(fault.for_s, tried)
        on_s, off_s = _rhythm(fault)
        while True:
            end = await self._hold_once(fault, injection, stay, on_s)
            over = off_s >= stay.left_s() if end is _End.TIME_UP else not fault.follow
            if end is _End.LOST or over:
                return
            if end is _End.TIME_UP:
                await anyio.sleep(off_s)
            with anyio.move_on_after(stay.left_s()) as waiting:
                await self._recorder.until(lambda history: history.alive(injection.target))
            if waiting.cancelled_caught:
                return

    async def _hold_once(self, fault: PlannedFault, injection: HeldInjection, stay: _Stay, on_s: float) -> _End:
        """Hold an injection on one life of its target, for at most `on_s`, and say what ended it."""
        decided_s = self._clock()
        try:
            async with self._held(fault, injection, min(on_s, stay.left_s())) as hold:
                self._in_force(fault, injection, hold.proof, decided_s)
                stay.begin()
                with anyio.move_on_after(min(on_s, stay.left_s())) as waiting:
                    await self._recorder.until(
                        lambda history: hold.ended or history.over(injection.target, hold.proof.incarnation)
                    )
                if hold.trouble:
                    return _End.LOST
                return _End.TIME_UP if waiting.cancelled_caught else _End.TARGET_DIED
        except (InjectionRefused, TimeoutError) as error:
            self._failed(fault, injection, error)
            stay.tried.set()
            return _End.LOST

    @asynccontextmanager
    async def _held(self, fault: PlannedFault, injection: HeldInjection, for_s: float) -> AsyncIterator[Hold]:
        """The platform's hold, with the proof of its end in the journal, however it ends."""
        hold: Hold | None = None
        ended_s = 0.0
        try:
            async with self._cluster.hold(injection, for_s) as hold:
                try:
                    yield hold
                finally:
                    ended_s = self._clock()
        finally:
            if hold is not None and hold.reverted is not None:
                latency_s = self._clock() - ended_s
                self._recorder.emit(
                    InjectionReverted(
                        **self._own(fault),
                        injection=injection,
                        proof=hold.reverted,
                        latency_s=latency_s,
                        target_gone=hold.target_gone,
                    )
                )
            if hold is not None and (hold.trouble or hold.reverted is None):
                reason = hold.trouble or "its end was not proven"
                self._recorder.emit(RevertFailed(**self._own(fault), injection=injection, reason=reason))

    def _in_force(self, fault: PlannedFault, injection: Injection, proof: Proof, decided_s: float) -> None:
        latency_s = self._clock() - decided_s
        self._recorder.emit(InjectionInForce(**self._own(fault), injection=injection, proof=proof, latency_s=latency_s))

    def _failed(self, fault: PlannedFault, injection: Injection, error: Exception) -> None:
        patience_s = INJECT_TIMEOUT_S if isinstance(injection, Held) else _patience_s(injection)
        reason = str(error) or f"not proven in force within {patience_s:.0f} s"
        self._recorder.emit(InjectionFailed(**self._own(fault), injection=injection, reason=reason))

    def _own(self, fault: PlannedFault) -> dict[str, Any]:
        """What every event of the fault carries."""
        return {"t_s": self._clock(), "member": RUNNER, "fault_id": fault.id}


@asynccontextmanager
async def _until_here() -> AsyncIterator[TaskGroup]:
    """Tasks that end with the block: what they hold was entered and is left in their own scopes."""
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        finally:
            tasks.cancel_scope.cancel()


def _rhythm(fault: PlannedFault) -> tuple[float, float]:
    """How long a held fault is on, and then off."""
    if fault.rhythm is None:
        return inf, inf
    on_s = fault.rhythm.period_s * fault.rhythm.duty
    return on_s, fault.rhythm.period_s - on_s


def _patience_s(injection: OneShot) -> float:
    """How long an injection may take: what it leaves its target comes on top."""
    return INJECT_TIMEOUT_S + (0.0 if isinstance(injection, Delete) else injection.grace_s)


def _can_strike(injection: Injection, history: History) -> bool:
    """Whether there is something to hit: a living member, a trainer for what is done to or by that, and those from whom
    it is to be cut off, whose addresses are those of their present lives.
    """
    member = history.members.get(injection.target if isinstance(injection, Held) else injection.member)
    if member is None or isinstance(injection, Launch):
        return True
    of_trainer = isinstance(injection, FaultPoint) or (
        isinstance(injection, Signal) and injection.process is Process.TRAINER
    )
    peers = injection.peers if isinstance(injection, Drop) else ()
    ready = member.alive and not (of_trainer and member.activity is Activity.STARTING)
    return ready and all(history.alive(peer) for peer in peers)


def _left(history: History, targets: tuple[str, ...]) -> int:
    """Replicas that would train on if those were hit."""
    return sum(replica.activity is Activity.TRAINING for replica in history.spared(targets))
