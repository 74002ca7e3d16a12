"""What faults do to a run, as metrics: what is in force, how soon survivors went on, how victims came back.

Part of the fold. A wait is counted when it is over, with the same definitions as the monitors': `chaos.model.recovery`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from prometheus_client import Histogram

from chaos.metrics.families import Families
from chaos.model.events import (
    AnyEvent,
    FaultEnded,
    FaultMissed,
    FaultStarted,
    InjectionFailed,
    InjectionInForce,
    InjectionReverted,
    RevertFailed,
    RunEnded,
    Step,
)
from chaos.model.injections import Held
from chaos.model.lives import Hit
from chaos.model.past import Past
from chaos.model.plan import Plan
from chaos.model.recovery import WayBack, survival, way_back


@dataclass
class _Active:
    """A fault that is not over: something is held, or a victim is away."""

    targets: tuple[str, ...]
    ended: bool = False


@dataclass
class _Wait:
    """The survivors of a fault, until each of them has committed since its first proof in force."""

    proof: InjectionInForce
    survivors: set[str]
    waiting: set[str]
    went_on_s: dict[str, float] = field(default_factory=dict)
    """Survivor -> the time of its first commit since."""


class Faults:
    """The faults of one run."""

    def __init__(self, families: Families, plan: Plan) -> None:
        self._families, self._plan = families, plan
        self._experiment = plan.experiment.name
        self._names = {fault.id: fault.fault for fault in plan.faults}
        self._replicas = frozenset(plan.replicas())
        self.began_s = 0.0
        """The Unix time at which the run's clock was 0."""
        self._active: dict[str, _Active] = {}
        self._held: set[tuple[str, Held]] = set()
        self._left: set[tuple[str, Held]] = set()
        """What should have been undone by now and was not proven to be."""
        self._away: dict[str, Hit] = {}
        """Replica -> the newest hit that took it out, until it is back."""
        self._waits: dict[str, _Wait] = {}
        self._set_out()

    def _set_out(self) -> None:
        families, name = self._families, self._experiment
        families.leftover.labels(name).set(0)
        for fault in set(self._names.values()):
            for counter in (
                families.faults_started, families.faults_missed, families.injections_failed, families.reverts_failed,
            ):  # fmt: skip
                counter.labels(name, fault)
            families.injection_latency.labels(name, fault)
            families.revert_latency.labels(name, fault)
        for planned in self._plan.faults:
            for target in planned.targets:
                families.fault_active.labels(*self._of(planned.id), target).set(0)
                families.held.labels(*self._of(planned.id), target).set(0)
        for replica in self._plan.replicas():
            families.away.labels(name, replica).set(0)
            families.due.labels(name, replica).set(0)

    def see_commit(self, event: Step, past: Past) -> None:
        """A committed step of a replica, before drain."""
        if self._waits:
            self._go_on(event, past)
        if self._away:
            self._come_back(event, past)

    def see(self, event: AnyEvent, past: Past) -> None:
        """Any other event."""
        match event:
            case FaultStarted():
                self._start(event)
            case InjectionInForce():
                self._in_force(event, past)
            case InjectionReverted():
                self._reverted(event, past)
            case RevertFailed():
                self._families.reverts_failed.labels(*self._of(event.fault_id)).inc()
                self._leave([one for one in self._held if one == (event.fault_id, event.injection)])
            case InjectionFailed():
                self._families.injections_failed.labels(*self._of(event.fault_id)).inc()
            case FaultMissed():
                self._families.faults_missed.labels(*self._of(event.fault_id)).inc()
            case FaultEnded(fault_id=fault_id) if fault_id in self._active:
                self._active[fault_id].ended = True
                self._close(fault_id)
            case RunEnded():
                self._end()
            case _:
                pass

    def _start(self, event: FaultStarted) -> None:
        self._families.faults_started.labels(*self._of(event.fault_id)).inc()
        self._active[event.fault_id] = _Active(event.targets)
        for target in event.targets:
            self._families.fault_active.labels(*self._of(event.fault_id), target).inc()

    def _in_force(self, event: InjectionInForce, past: Past) -> None:
        fault_id, injection = event.fault_id, event.injection
        self._families.injection_latency.labels(*self._of(fault_id)).observe(event.latency_s)
        if isinstance(injection, Held) and (fault_id, injection) not in self._held:
            self._held.add((fault_id, injection))
            self._families.held.labels(*self._of(fault_id), injection.target).inc()
        for hit in past.hits_by(fault_id):
            if hit.removes and hit.member in self._replicas and hit.proofs[-1] is event:
                self._take_out(hit)
        if len(past.proofs[fault_id]) == 1:
            survivors = self._replicas - self._away.keys()
            self._waits[fault_id] = _Wait(event, set(survivors), set(survivors))

    def _take_out(self, hit: Hit) -> None:
        """The replica need not come back from an earlier hit any more, nor go on after the faults of others."""
        earlier = self._away.get(hit.member)
        self._away[hit.member] = hit
        self._families.away.labels(self._experiment, hit.member).set(1)
        self._set_due(hit)
        if earlier is not None:
            self._close(earlier.fault_id)
        for fault_id, wait in self._waits.items():
            wait.waiting.discard(hit.member)
            if fault_id == hit.fault_id:
                wait.survivors.discard(hit.member)
                wait.went_on_s.pop(hit.member, None)

    def _reverted(self, event: InjectionReverted, past: Past) -> None:
        fault_id, injection = event.fault_id, event.injection
        self._families.revert_latency.labels(*self._of(fault_id)).observe(event.latency_s)
        if isinstance(injection, Held) and (fault_id, injection) in self._held:
            self._held.remove((fault_id, injection))
            self._families.held.labels(*self._of(fault_id), injection.target).dec()
        for hit in past.hits_by(fault_id):
            if self._away.get(hit.member) is hit:
                self._set_due(hit)

    def _set_due(self, hit: Hit) -> None:
        due = self._families.due.labels(self._experiment, hit.member)
        due.set(self.began_s + hit.due_s if hit.due_s < inf else 0)

    def _leave(self, held: Iterable[tuple[str, Held]]) -> None:
        self._left.update(held)
        self._families.leftover.labels(self._experiment).set(len(self._left))

    def _go_on(self, event: Step, past: Past) -> None:
        """A survivor commits: once the last one did, the fault is over for them."""
        for fault_id, wait in list(self._waits.items()):
            if event.member in wait.waiting and event.t_s > wait.proof.t_s:
                wait.waiting.remove(event.member)
                wait.went_on_s[event.member] = event.t_s
            if wait.waiting:
                continue
            del self._waits[fault_id]
            if wait.went_on_s:
                self._observe_wait(wait, past)

    def _observe_wait(self, wait: _Wait, past: Past) -> None:
        in_force_s, went_on_s = wait.proof.t_s, wait.went_on_s.values()
        signs = survival(wait.survivors, wait.proof, max(went_on_s), past)
        phases = {"failed_step": signs.failed_step_s, "requorum": signs.requorum_s}
        phases |= {"first_commit": min(went_on_s) - in_force_s, "last_commit": max(went_on_s) - in_force_s}
        _observe(self._families.survivors, self._of(wait.proof.fault_id), phases)

    def _come_back(self, event: Step, past: Past) -> None:
        """A replica that is away is back once it commits with a peer, after the fault has ended."""
        for member, hit in list(self._away.items()):
            fault = self._active.get(hit.fault_id)
            if (fault is None or fault.ended) and any(commit.member == member for commit in past.kept(event.step)):
                way = self._way_back(hit, past)
                if way is not None:
                    phases = {name.removesuffix("_s"): value for name, value in way.phases().items()}
                    _observe(self._families.recovery, self._of(hit.fault_id), phases)
                    self._back(member)
                    self._close(hit.fault_id)

    def _way_back(self, hit: Hit, past: Past) -> WayBack | None:
        for life, commit in past.commits_after(hit):
            peers = (one for one in past.kept(commit.step) if one.member != hit.member)
            if len(self._replicas) == 1 or any(one.quorum_id == commit.quorum_id for one in peers):
                return way_back(hit, life, commit)
        return None

    def _back(self, member: str) -> None:
        del self._away[member]
        self._families.away.labels(self._experiment, member).set(0)
        self._families.due.labels(self._experiment, member).set(0)

    def _close(self, fault_id: str) -> None:
        """The fault is over once it has ended and nobody is away by it."""
        active = self._active.get(fault_id)
        if active and active.ended and not any(hit.fault_id == fault_id for hit in self._away.values()):
            del self._active[fault_id]
            for target in active.targets:
                self._families.fault_active.labels(*self._of(fault_id), target).dec()

    def _end(self) -> None:
        """With the run all waiting ends; what is still held is left behind."""
        self._leave(self._held)
        self._waits.clear()
        for active in self._active.values():
            active.ended = True
        for member in list(self._away):
            self._back(member)
        for fault_id in list(self._active):
            self._close(fault_id)

    def _of(self, fault_id: str) -> tuple[str, str]:
        """The labels of a fault; a journal may hold one that was not planned."""
        return self._experiment, self._names.get(fault_id, "unknown")


def _observe(family: Histogram, labels: tuple[str, str], phases: Mapping[str, float | None]) -> None:
    for phase, seconds in phases.items():
        if seconds is not None:
            family.labels(*labels, phase).observe(seconds)
