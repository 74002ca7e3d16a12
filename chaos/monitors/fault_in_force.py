"""`fault_in_force`: the experiment took place at all."""

from __future__ import annotations

from math import inf
from typing import ClassVar

from chaos.api import (
    AnyEvent,
    Commit,
    FaultPoint,
    Finding,
    Held,
    History,
    Injection,
    Lethal,
    Limits,
    Monitor,
    Outcome,
    Past,
    Plan,
    PlannedFault,
    counted,
    events,
    listed,
)


class FaultInForce(Monitor[Limits]):
    """Every planned fault was made as planned, after the baseline: each injection in force, each fault point reached.

    Without this a run proves nothing: a job that was never disturbed passes every other test. It is never FAIL, since
    the job under test is not to blame.
    """

    name: ClassVar[str] = "fault_in_force"
    safety: ClassVar[bool] = False
    proves: ClassVar[bool] = True
    watches = (events.FaultMissed, events.InjectionFailed, events.FaultPointHit)

    def __init__(self, plan: Plan, limits: Limits) -> None:
        super().__init__(plan, limits)
        self._why_not: dict[str, events.FaultMissed | events.InjectionFailed] = {}
        self._struck_s: dict[tuple[str, str, str], float] = {}
        """Member, point, action -> when it last did that to itself."""

    def observe(self, event: AnyEvent, history: History) -> None:
        if isinstance(event, events.FaultMissed | events.InjectionFailed):
            self._why_not[event.fault_id] = event
        elif isinstance(event, events.FaultPointHit):
            done = event.member, event.point, event.action
            self._struck_s[done] = max(event.t_s, self._struck_s.get(done, event.t_s))

    def conclude(self, history: History) -> Finding:
        past = history.past
        doubts = [doubt for fault in self.plan.faults if (doubt := self._doubt(fault, past))]
        planned = {fault.id for fault in self.plan.faults}
        proofs = [hit for hit in past.in_force if hit.fault_id in planned]
        measures: dict[str, float | int | str | None] = {
            "faults_planned": len(self.plan.faults),
            "faults_in_force": len(self.plan.faults) - len(doubts),
            "latency_s": max((hit.latency_s for hit in proofs), default=None),
        }
        evidence = [hit.seq for hit in proofs] + [event.seq for event in self._why_not.values()]
        if doubts:
            return self.finding(Outcome.UNKNOWN, "; ".join(doubts), measures, evidence)
        if missing := past.missing(()):
            return self.finding(Outcome.UNKNOWN, missing, measures, evidence)
        if not self.plan.faults:
            return self.finding(Outcome.PASS, "no fault was planned", measures)
        started = list(past.started.values())
        said = ", ".join(f"{one.fault} of {listed(one.targets)}" for one in started[:3])
        more = f" and {len(started) - 3} more" if len(started) > 3 else ""
        slowest_ms = max(hit.latency_s for hit in proofs) * 1000
        reading = f"{said}{more}: in force, proven within {slowest_ms:.0f} ms of the decision"
        return self.finding(Outcome.PASS, reading, measures, evidence)

    def _doubt(self, fault: PlannedFault, past: Past) -> str | None:
        """Why a planned fault cannot be said to have been in force; None when it can."""
        started = past.started.get(fault.id)
        name = f"{fault.id} ({fault.fault} of {listed(started.targets if started else fault.targets or [fault.role])})"
        if started is None:
            why_not = self._why_not.get(fault.id)
            return f"{name} was not in force: {why_not.reason}" if why_not else f"{name} was never started"
        if misfit := _misfit(fault, started, past):
            return f"{name} {misfit}"
        proven = past.proofs.get(fault.id, [])
        unproven = [injection for injection in started.injections if injection not in [hit.injection for hit in proven]]
        if unproven:
            if why_not := self._why_not.get(fault.id):
                return f"{name} was not in force: {why_not.reason}"
            return f"{name} was started, but {counted(len(unproven), 'injection')} of it never proven in force"
        for hit in proven:
            if hit.proof.member != (aim := _target(hit.injection)):
                return f"{name} was not in force: {hit.proof.member} was read back in the place of {aim}"
            if afterlife := _afterlife(hit, past):
                return f"{name} was not in force: {afterlife}"
            if isinstance(hit.injection, FaultPoint) and not self._reached(hit.injection, started):
                return f"{name} was ordered, but {hit.proof.member} never came to {hit.injection.point.value}"
        return None

    def _reached(self, order: FaultPoint, started: events.FaultStarted) -> bool:
        """Whether a trainer did to itself what it was ordered to; its word may be older than the order's proof."""
        return self._struck_s.get((order.target, order.point.value, order.action.value), -inf) >= started.t_s


def _misfit(fault: PlannedFault, started: events.FaultStarted, past: Past) -> str | None:
    """Why what was started is not what was planned. For a role of the moment the plan leaves open who is hit."""
    if fault.targets and started.targets != fault.targets:
        return f"was aimed at others than planned, which is {listed(fault.targets)}"
    if fault.injections and started.injections != fault.injections:
        return "was made of other injections than planned"
    disturb = past.phases.get("disturb")
    return "was started before the job was seen to be healthy" if disturb and started.seq < disturb.seq else None


def _target(injection: Injection) -> str:
    return injection.target if isinstance(injection, Held) else injection.member


def _afterlife(hit: events.InjectionInForce, past: Past) -> str | None:
    """A life said to be killed that tried a step later was not killed. A node takes those who lived on it with it."""
    if not isinstance(hit.injection, Lethal):
        return None
    for struck in (one.struck for one in past.hits_by(hit.fault_id) if hit in one.proofs and one.struck):
        tried: list[Commit | events.Step] = [*struck.commits[-1:], *struck.discards[-1:]]
        if after := [step for step in tried if step.t_s > hit.t_s]:
            return f"{struck.member} was called dead and tried step {after[0].step} afterwards"
    return None
