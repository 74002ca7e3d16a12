"""Journals told step by step, as the job and the runner would write them, and their judgement.

    story = Story(replicas=3).deploy().train(10)
    story.kill("replica-1").wait(1.0).discard().regroup().train(5)
    story.restart("replica-1").train(10).build("replica-1").train(2).join("replica-1").train(10)
    findings = judge(story.drain().end())

Every step takes `STEP_S`, every replica reports it a millisecond after the one before, and each commit has a digest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from chaos.api import (
    CpuLimit,
    Delete,
    Finding,
    Freeze,
    Held,
    Injection,
    Limits,
    Monitor,
    NodeDown,
    Outcome,
    Process,
    Signal,
    events,
)
from chaos.model.experiment import Experiment, Trigger, WorkloadSpec
from chaos.model.history import History
from chaos.model.injections import Proof
from chaos.model.plan import Plan, PlannedFault
from chaos.model.topology import Restart, place
from chaos.model.workload import Role, Workload
from chaos.monitors.data_once import DataOnce
from chaos.monitors.fault_in_force import FaultInForce
from chaos.monitors.fault_reverted import FaultReverted
from chaos.monitors.finite_loss import FiniteLoss
from chaos.monitors.goodput import Goodput
from chaos.monitors.gradients_scaled import GradientsScaled
from chaos.monitors.history_kept import HistoryKept
from chaos.monitors.no_collateral import NoCollateral
from chaos.monitors.one_quorum import OneQuorum
from chaos.monitors.participation import Participation
from chaos.monitors.progress import Progress
from chaos.monitors.replicas_rejoin import ReplicasRejoin
from chaos.monitors.same_state import SameState
from chaos.monitors.survivors_continue import SurvivorsContinue

STEP_S = 0.5
MONITORS: tuple[type[Monitor[Any]], ...] = (
    DataOnce,
    FaultInForce,
    FaultReverted,
    FiniteLoss,
    Goodput,
    GradientsScaled,
    HistoryKept,
    NoCollateral,
    OneQuorum,
    Participation,
    Progress,
    ReplicasRejoin,
    SameState,
    SurvivorsContinue,
)
Event = events.Event


def same_digest(member: str, step: int) -> str | None:
    return f"state {step}"


class Story:
    """A run as it is told; every method adds to it and gives it back."""

    def __init__(self, replicas: int = 3, steps: int = 400, lighthouse: bool = True) -> None:
        names = tuple(f"replica-{index}" for index in range(replicas))
        roles = {"lighthouse": ("lighthouse",), "controller": ("controller",), "replica": names}
        if not lighthouse:
            del roles["lighthouse"]
        self.replicas = names
        self.workload = Workload(
            1, "cpu-debug", replicas, 1, steps, {role: Role(members, ("run",)) for role, members in roles.items()}
        )
        self.topology = place(self.workload, 2, Restart.ALWAYS)
        self.faults: list[PlannedFault] = []
        self.told: list[Event] = []
        self.now_s = 0.0
        self.step = 0
        self.quorum_id = 0
        self.group: set[str] = set()
        self.healing: set[str] = set()
        self.incarnation = {placement.member: 1 for placement in self.topology.placements}

    @property
    def plan(self) -> Plan:
        spec = WorkloadSpec("cpu-debug", len(self.replicas), 1, self.workload.steps)
        return Plan(Experiment("a-run", "a test", spec, {}), self.workload, self.topology, tuple(self.faults))

    # The words of the members.

    def say(self, kind: Callable[..., Event], member: str, after_s: float = 0.0, **fields: Any) -> Story:
        incarnation = fields.pop("incarnation", self.incarnation.get(member, 0))
        self.told.append(kind(t_s=self.now_s + after_s, member=member, incarnation=incarnation, **fields))
        return self

    def phase(self, name: str) -> Story:
        return self.say(events.PhaseStarted, "runner", phase=name)

    def wait(self, seconds: float) -> Story:
        self.now_s += seconds
        return self

    def deploy(self) -> Story:
        self.say(events.RunStarted, "runner", plan="p", platform="local", isolation="namespaces", wall_s=0.0)
        self.phase("deploy").wait(0.1)
        for placed in self.topology.placements:
            self.say(events.MemberStarted, placed.member, node=placed.node, address="10.0.0.1", pid=100)
        self.say(events.LighthouseStarted, "lighthouse" if "lighthouse" in self.incarnation else "controller", 0.1)
        self.wait(5.0)
        for member in self.replicas:
            self._trainer(member)
        self.group = set(self.replicas)
        return self.phase("baseline").regroup()

    def regroup(self) -> Story:
        """A new quorum of the present group."""
        self.quorum_id += 1
        top = self.step
        for member in sorted(self.group):
            heal = member in self.healing
            self.say(
                events.Quorum,
                member,
                quorum_id=self.quorum_id,
                step=0 if heal else top,
                participants=len(self.group - self.healing),
                members=tuple(sorted(self.group)),
                max_step=top,
                heal=heal,
            )
        return self

    def train(self, steps: int, digest: Callable[[str, int], str | None] = same_digest) -> Story:
        """The group commits steps."""
        for _ in range(steps):
            self.wait(STEP_S)
            self.step += 1
            for number, member in enumerate(sorted(self.group)):
                self._step(member, self.step, True, number / 1000, digest(member, self.step))
            self.healing = set()
        return self

    def discard(self) -> Story:
        """The group tries a step in vain."""
        for number, member in enumerate(sorted(self.group)):
            self._step(member, self.step + 1, False, number / 1000, None, "peer is gone")
        return self

    def _step(self, member: str, step: int, ok: bool, after_s: float, digest: str | None, error: str = "") -> None:
        self.say(
            events.Step,
            member,
            after_s,
            step=step,
            committed=ok,
            quorum_id=self.quorum_id,
            participants=len(self.group - self.healing),
            healing=member in self.healing,
            loss=1.0 / step,
            grad_norm=1.0,
            tokens=8,
            lr=0.1,
            duration_s=STEP_S,
            digest=digest,
            error=error or None,
            batch=step,
            gradient_scale=1.0 if ok else None,
        )

    def _trainer(self, member: str) -> None:
        replica_id = f"{member}:{self.incarnation[member]}"
        about = {"replica_id": replica_id, "recipe": "cpu-debug", "device": "cpu", "parameters": 1}
        self.say(events.TrainerStarted, member, pid=7, **about)

    # What befalls them.

    def kill(self, *members: str, process: bool = False) -> Story:
        """A planned fault kills members: decided now, gone after 10 ms, proven after 20 ms."""
        injections = tuple(Signal(m, Process.TRAINER, 9) if process else Delete(m) for m in members)
        for member in members:
            self.say(events.MemberExited, member, 0.01, status=-9)
        self.group -= set(members)
        return self.strike("process.kill" if process else "pod.kill", *injections)

    def power_off(self, node: str) -> Story:
        """A node is down with all that is on it."""
        on_it = self.topology.on(node)
        for member in on_it:
            self.say(events.MemberExited, member, 0.01, status=-9)
        self.group -= set(on_it)
        return self.strike("node.down", NodeDown(node))

    def strike(self, name: str, *injections: Injection, removes: bool = True) -> Story:
        """A planned fault is decided now and proven in force after 20 ms."""
        targets = tuple(dict.fromkeys(map(_target, injections)))
        number = f"fault-{len(self.faults)}"
        fault = PlannedFault(number, name, Trigger(step=1), "replica", targets, injections, removes=removes)
        self.faults.append(fault)
        aimed = {"targets": targets, "injections": injections, "removes": removes}
        self.say(events.FaultStarted, "runner", fault_id=fault.id, fault=name, trigger="step 1", **aimed)
        return self.hold(fault)

    def hold(self, fault: PlannedFault) -> Story:
        """All injections of a fault are proven in force after 20 ms."""
        for injection in fault.injections:
            self._proven(events.InjectionInForce, fault, injection)
        return self.wait(0.02)

    def release(self, fault: PlannedFault | None = None) -> Story:
        """All injections of a fault, the newest one, are proven undone after 20 ms."""
        fault = fault or self.faults[-1]
        for injection in fault.injections:
            self._proven(events.InjectionReverted, fault, injection)
        return self.wait(0.02)

    def _proven(self, kind: Callable[..., Event], fault: PlannedFault, injection: Injection) -> None:
        target = _target(injection)
        proof = Proof(target, self.incarnation.get(target, 0), "read back")
        self.say(kind, "runner", 0.02, fault_id=fault.id, injection=injection, proof=proof, latency_s=0.02)

    def freeze(self, member: str) -> Story:
        self.group.discard(member)
        return self.strike("process.freeze", Freeze(member))

    def restart(self, member: str, node: str = "node-0") -> Story:
        """The platform starts the next incarnation."""
        self.incarnation[member] += 1
        return self.say(events.MemberStarted, member, node=node, address="10.0.0.9", pid=200)

    def build(self, member: str) -> Story:
        self._trainer(member)
        return self

    def join(self, member: str, heal_s: float = 0.3) -> Story:
        """The member joins the group by a new quorum and heals; it commits with the group's next step."""
        self.group.add(member)
        if self.step:
            self.healing.add(member)
        self.regroup()
        source = min(self.group - {member}, default="nobody")
        self.say(events.HealStarted, member, 0.01, step=self.step, source=source)
        digest = f"state {self.step}"
        return self.say(events.HealEnded, member, 0.01 + heal_s, step=self.step, source=source, digest=digest)

    def drain(self) -> Story:
        """The run stops the job; members end one after the other."""
        self.wait(0.1).phase("drain").wait(0.3)
        for member in sorted(self.group):
            self.say(events.TrainerFinished, member, step=self.step, reason="stopped")
        for number, member in enumerate(self.incarnation):
            self.say(events.MemberExited, member, 0.1 + number / 1000, status=0)
        return self.wait(0.5)

    def end(self, completed: bool = True) -> Story:
        return self.say(events.RunEnded, "runner", completed=completed, reason="done" if completed else "interrupted")

    # What can be done to a journal.

    def alter(self, where: Callable[[Any], bool], **changes: Any) -> Story:
        """Change the events that match; there must be some."""
        assert any(map(where, self.told))
        self.told = [msgspec.structs.replace(e, **changes) if where(e) else e for e in self.told]
        return self

    def drop(self, where: Callable[[Any], bool]) -> Story:
        assert any(map(where, self.told))
        self.told = [event for event in self.told if not where(event)]
        return self

    def journal(self) -> list[Event]:
        """The events in the order of their times, numbered."""
        return numbered(sorted(self.told, key=lambda event: event.t_s))


def _target(injection: Injection) -> str:
    return injection.target if isinstance(injection, Held) else injection.member


def numbered(told: Iterable[Event]) -> list[Event]:
    return [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(told)]


def jittered(told: list[Event], seed: int, late_s_max: float) -> list[Event]:
    """The journal had the members' events come late, each in its own member's order; the runner's come at once."""
    chance = random.Random(seed)
    arrived_s: dict[str, float] = {}
    arrivals = []
    for event in told:
        late_s = 0.0 if event.member == "runner" else chance.uniform(0.0, late_s_max)
        arrived_s[event.member] = max(arrived_s.get(event.member, 0.0), event.t_s + late_s)
        last = isinstance(event, events.RunEnded)
        arrivals.append((last, arrived_s[event.member], event))
    return numbered(event for *_, event in sorted(arrivals, key=lambda arrival: arrival[:2]))


def steady(replicas: int = 3) -> Story:
    """Nothing happens to anyone."""
    return Story(replicas).deploy().train(20).phase("disturb").phase("quiesce").train(10).drain().end()


def lost(replicas: int = 3) -> Story:
    """replica-1 is killed at step 12; its peers notice, discard a step and go on without it for 5 steps."""
    story = Story(replicas).deploy().train(12).phase("disturb").wait(0.1).kill("replica-1").phase("quiesce")
    return story.wait(1.0).discard().regroup().train(5)


def lost_and_back(replicas: int = 3) -> Story:
    """... and comes back: two steps until it is restarted, nine until its trainer is built, one until it joins."""
    story = lost(replicas).train(2).restart("replica-1").train(9).build("replica-1").train(1)
    return story.join("replica-1").train(10).drain().end()


def frozen(replicas: int = 3) -> Story:
    """replica-1 stands still at step 12; its peers go on without it for 10 steps, then it may go on."""
    story = Story(replicas).deploy().train(12).phase("disturb").wait(0.1).freeze("replica-1").wait(1.0)
    return story.discard().regroup().train(10).release().phase("quiesce")


def frozen_and_back(replicas: int = 3) -> Story:
    """... and heals, in the same life, after another step."""
    return frozen(replicas).train(1).join("replica-1").train(10).drain().end()


def node_off_and_back(replicas: int = 4) -> Story:
    """node-1 is off with replica-1 and replica-3 for 10 steps; they come back once it is on again."""
    story = Story(replicas).deploy().train(12).phase("disturb").wait(0.1).power_off("node-1").wait(1.0)
    story.discard().regroup().train(10).release().phase("quiesce")
    for member in story.topology.on("node-1"):
        story.restart(member, "node-1").train(4).build(member).join(member).train(2)
    return story.train(10).drain().end()


def slowed(replicas: int = 3) -> Story:
    """replica-1 is slow, and so is everybody, for 10 steps."""
    story = Story(replicas).deploy().train(12).phase("disturb").wait(0.1)
    story.strike("cpu.starve", CpuLimit("replica-1", 0.2), removes=False)
    for _ in range(10):
        story.wait(1.5).train(1)
    return story.release().phase("quiesce").train(10).drain().end()


def judge(story: Story | list[Event], plan: Plan | None = None, **limits: Limits) -> dict[str, Finding]:
    """Every monitor's finding; `limits` by the monitor's name."""
    findings, _ = judge_live(story, plan, **limits)
    return findings


def judge_live(
    story: Story | list[Event],
    plan: Plan | None = None,
    kinds: Iterable[type[Monitor[Any]]] = MONITORS,
    **limits: Limits,
) -> tuple[dict[str, Finding], dict[str, int]]:
    """The findings, and for each monitor that was broken during the run the journal position at which it was."""
    if isinstance(story, Story):
        story, plan = story.journal(), story.plan
    assert plan is not None
    history = History(plan.topology)
    monitors = [kind(plan, limits.get(kind.name, kind.limits())) for kind in kinds]
    broken: dict[str, int] = {}
    for event in story:
        history.apply(event)
        for monitor in monitors:
            if isinstance(event, monitor.watches) and (monitor.ordinary or not history.past.ordinary):
                monitor.observe(event, history)
            if monitor.broken is not None:
                assert monitor.broken.outcome is Outcome.FAIL
                broken.setdefault(monitor.name, event.seq)
    return {monitor.name: monitor.conclude(history) for monitor in monitors}, broken


def outcomes(findings: dict[str, Finding]) -> dict[str, Outcome]:
    return {name: finding.outcome for name, finding in findings.items()}


def failing(findings: dict[str, Finding]) -> set[str]:
    return {name for name, finding in findings.items() if finding.outcome is Outcome.FAIL}


def unknown(findings: dict[str, Finding]) -> set[str]:
    return {name for name, finding in findings.items() if finding.outcome is Outcome.UNKNOWN}


def about(kind: type[Event], member: str | None = None, **fields: Any) -> Callable[[Any], bool]:
    """Which events: of a kind, of a member, with these fields."""

    def matches(event: Any) -> bool:
        same = all(getattr(event, key) == value for key, value in fields.items()) if type(event) is kind else False
        return same and (member is None or event.member == member)

    return matches
