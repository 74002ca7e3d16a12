"""The fold: what each event of a run adds to the metrics. Times are the run's own, so that a stored run gives the same.

    metrics = Metrics()
    watcher = metrics.begin(plan, "20261129-183350-replica-lost")   # to be shown every event
    metrics.judged(plan, verdict)
    metrics.text()

One `Metrics` takes one run after the other, as a gate makes them: counters and histograms add up by experiment, gauges
tell of the newest run. What a member does after drain began counts for nothing but that it still lives.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, generate_latest
from prometheus_client.registry import Collector

from chaos import registry
from chaos.api import Monitor
from chaos.check import PHASES
from chaos.metrics.families import Families
from chaos.metrics.faults import Faults
from chaos.model.events import (
    AnyEvent,
    BytesCarried,
    EventsLost,
    HealEnded,
    PhaseStarted,
    Quorum,
    RunEnded,
    RunStarted,
    SafetyBroken,
    Step,
    Unknown,
)
from chaos.model.gate import Gate, Reading
from chaos.model.history import Activity, History, Member
from chaos.model.plan import Plan
from chaos.model.ports import Watcher
from chaos.model.verdict import Outcome, Verdict

GROWTH = 1.1
"""Goodput is over the whole run, so it is made anew when the run has grown by a tenth: that costs the same for
each step of a run of any length."""


class Metrics:
    """All metrics of a process, collected without the time at which each began to exist here, which tells nothing."""

    def __init__(self) -> None:
        dated = CollectorRegistry()
        self.families = Families(dated)
        self.registry = CollectorRegistry()
        self.registry.register(_Undated(dated))
        self._infos: dict[str, tuple[str, ...]] = {}
        """Experiment -> the labels of its newest run."""

    def begin(self, plan: Plan, run: str) -> Watcher:
        """What is to be shown every event of a run, after its history has taken it in."""
        return _Fold(self.families, plan, self._infos, run).see

    def judged(self, plan: Plan, verdict: Verdict) -> None:
        """The end of a run, also of one that was cut off: what was found."""
        name, families = plan.experiment.name, self.families
        families.run_active.labels(name).set(0)
        for phase in PHASES:
            families.run_phase.labels(name, phase).set(0)
        for outcome in Outcome:
            newest = outcome is verdict.outcome
            families.runs.labels(name, outcome.value).inc(newest)
            families.outcome.labels(name, outcome.value).set(newest)
            for finding in verdict.findings:
                labels = (name, finding.monitor, _property(registry.monitors()[finding.monitor]), outcome.value)
                families.finding.labels(*labels).set(outcome is finding.outcome)
        families.success.labels(name).set(verdict.exit_code == 0)

    def gated(self, gate: Gate) -> None:
        """What a gate found so far; to be told again after each of its runs."""
        families, name = self.families, gate.name
        families.gate_complete.labels(name).set(gate.complete)
        families.gate_start.labels(name).set(gate.began_wall_s)
        families.gate_spent.labels(name).set(gate.spent_s)
        for outcome in Outcome:
            families.gate_outcome.labels(name, outcome.value).set(outcome is gate.outcome)
        for experiment in gate.experiments:
            families.gate_runs_wanted.labels(name, experiment.name).set(experiment.runs_wanted)
            for outcome in Outcome:
                runs = sum(run.outcome is outcome for run in experiment.runs)
                families.gate_runs.labels(name, experiment.name, outcome.value).set(runs)
            for reading in experiment.readings:
                self._read(reading, name, experiment.name)

    def _read(self, reading: Reading, *of: str) -> None:
        labels = (*of, reading.objective)
        for outcome in Outcome:
            self.families.objective_outcome.labels(*labels, outcome.value).set(outcome is reading.outcome)
        for family, value in (
            (self.families.objective_value, reading.value),
            (self.families.objective_bound, reading.bound),
            (self.families.objective_limit, reading.limit),
        ):
            if value is not None:
                family.labels(*labels).set(value)

    def text(self) -> str:
        """The text format, for the textfile collector of a node exporter or for a Pushgateway."""
        return generate_latest(self.registry).decode()


class _Undated(Collector):
    """What another collector has, without those times."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def collect(self) -> Iterator[Metric]:
        for metric in self._collector.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


def _property(monitor: type[Monitor[Any]]) -> str:
    return "proof" if monitor.proves else "safety" if monitor.safety else "liveness"


class _Replica:
    """The metrics of one replica that its steps change, most events of a run being steps."""

    def __init__(self, families: Families, experiment: str, name: str) -> None:
        self._families, self._labels = families, (experiment, name)
        self._results: dict[bool, Counter] = {
            committed: families.steps.labels(*self._labels, "committed" if committed else "discarded")
            for committed in (True, False)
        }
        self._tokens = families.tokens.labels(*self._labels)
        self._quorum_changes = families.quorum_changes.labels(*self._labels)
        self._activities: dict[Activity, Gauge] = {
            activity: families.activity.labels(*self._labels, activity.value) for activity in Activity
        }
        self.heals = families.heals.labels(*self._labels)
        self.carried(0, 0)
        self._activity: Activity | None = None
        self._quorum_id: int | None = None
        self._participants: int | None = None
        self._highest = 0

    @functools.cached_property
    def _loss(self) -> Gauge:
        return self._families.loss.labels(*self._labels)

    @functools.cached_property
    def _last_commit(self) -> Gauge:
        return self._families.last_commit.labels(*self._labels)

    def step(self, event: Step, began_s: float) -> None:
        self._results[event.committed].inc()
        if event.loss is not None:
            self._loss.set(event.loss)
        self._take_part(event.participants)
        if not event.committed:
            return
        self._last_commit.set(began_s + event.t_s)
        if event.step > self._highest:
            self._tokens.inc(0 if event.healing else event.tokens)
            self._highest = event.step

    def quorum(self, quorum_id: int, participants: int) -> None:
        if quorum_id != self._quorum_id:
            self._quorum_changes.inc(self._quorum_id is not None)
            self._families.quorum_id.labels(*self._labels).set(quorum_id)
            self._quorum_id = quorum_id
        self._take_part(participants)

    def _take_part(self, participants: int) -> None:
        if participants != self._participants:
            self._families.participants.labels(*self._labels).set(participants)
            self._participants = participants

    def carried(self, over_rdma: int, over_ethernet: int) -> None:
        self._families.carried.labels(*self._labels, "rdma").set(over_rdma)
        self._families.carried.labels(*self._labels, "ethernet").set(over_ethernet)

    def does(self, activity: Activity) -> None:
        if activity is not self._activity:
            for one, gauge in self._activities.items():
                gauge.set(one is activity)
            self._activity = activity


class _Fold:
    """One run."""

    def __init__(self, families: Families, plan: Plan, infos: dict[str, tuple[str, ...]], run: str) -> None:
        self._families, self._plan, self._infos, self._run = families, plan, infos, run
        self._name = plan.experiment.name
        self._replicas = {name: _Replica(families, self._name, name) for name in plan.replicas()}
        self._faults = Faults(families, plan)
        self._began_s = 0.0
        self._frontier = families.step.labels(self._name)
        self._mismatched: set[int] = set()
        self._step = 0
        self._goodput_from = 2
        """The step from which on goodput is made anew."""
        self._set_out()

    def _set_out(self) -> None:
        """What is known beforehand is 0 from the beginning."""
        families, name = self._families, self._name
        families.job_steps.labels(name).set(self._plan.workload.steps)
        self._frontier.set(0)
        for family in (families.digests_compared, families.digest_mismatches):
            family.labels(name)
        for outcome in Outcome:
            families.runs.labels(name, outcome.value)
        for monitor, kind in registry.monitors().items():
            if kind.safety and monitor in self._plan.experiment.monitors:
                families.safety_broken.labels(name, monitor)
        for placed in self._plan.topology.placements:
            families.alive.labels(name, placed.member, placed.role).set(0)
            families.events_lost.labels(name, placed.member)
        for replica in self._replicas.values():
            replica.does(Activity.DOWN)

    def see(self, event: AnyEvent, history: History) -> None:
        if isinstance(event, Step):
            if event.t_s < history.past.drain_s and event.member in self._replicas:
                self._see_step(event, self._replicas[event.member], history)
            return
        member = history.members.get(event.member)
        match event:
            case _ if member is not None:
                self._see_member(event, member)
            case RunStarted():
                self._start(event)
            case PhaseStarted(phase=phase):
                self._phase(phase)
            case BytesCarried(name=name) if name in self._replicas:
                self._replicas[name].carried(event.rdma_bytes or 0, event.ethernet_bytes)
            case SafetyBroken(monitor=monitor):
                self._families.safety_broken.labels(self._name, monitor).inc()
            case RunEnded():
                self._phase("")
                self._families.run_active.labels(self._name).set(0)
                self._families.run_duration.labels(self._name).set(event.t_s)
                self._goodput(history)
            case _:
                pass
        self._faults.see(event, history.past)

    def _see_step(self, event: Step, replica: _Replica, history: History) -> None:
        replica.step(event, self._began_s)
        replica.does(history.members[event.member].activity)
        if not event.committed:
            return
        if history.frontier > self._step:
            self._step = history.frontier
            self._frontier.set(self._step)
        if event.digest is not None:
            self._compare(event, history)
        if self._step >= self._goodput_from:
            self._goodput(history)
        self._faults.see_commit(event, history.past)

    def _see_member(self, event: AnyEvent, member: Member) -> None:
        families, replica = self._families, self._replicas.get(member.name)
        families.alive.labels(self._name, member.name, member.role).set(member.alive)
        match event:
            case EventsLost() | Unknown():
                families.events_lost.labels(self._name, member.name).inc()
            case Quorum(quorum_id=quorum_id, participants=participants) if replica is not None:
                replica.quorum(quorum_id, participants)
            case HealEnded() if replica is not None:
                replica.heals.inc()
            case _:
                pass
        if replica is not None:
            replica.does(member.activity)

    def _start(self, event: RunStarted) -> None:
        families, experiment = self._families, self._plan.experiment
        self._began_s = self._faults.began_s = event.wall_s
        if (earlier := self._infos.get(self._name)) is not None:
            families.run_info.remove(*earlier)
        recipe = self._plan.workload.recipe
        labels = (self._name, self._run, recipe, event.platform, event.isolation, str(experiment.seed))
        families.run_info.labels(*labels).set(1)
        self._infos[self._name] = labels
        families.run_start.labels(self._name).set(event.wall_s)
        families.run_active.labels(self._name).set(1)

    def _phase(self, phase: str) -> None:
        for one in PHASES:
            self._families.run_phase.labels(self._name, one).set(one == phase)

    def _compare(self, event: Step, history: History) -> None:
        """Count the step once: when a second replica told of its state, and when two of them differ."""
        digests = [commit for commit in history.past.kept(event.step) if commit.digest is not None]
        others = {commit.member for commit in digests if commit.member != event.member}
        if len(others) == 1 and sum(commit.member == event.member for commit in digests) == 1:
            self._families.digests_compared.labels(self._name).inc()
        if others and event.step not in self._mismatched and len({commit.digest for commit in digests}) > 1:
            self._mismatched.add(event.step)
            self._families.digest_mismatches.labels(self._name).inc()

    def _goodput(self, history: History) -> None:
        """As the monitor has it, of the run so far."""
        self._goodput_from = int(self._step * GROWTH) + 1
        kind = registry.monitors()["goodput"]
        measures = kind(self._plan, kind.limits()).conclude(history).measures
        families, name = self._families, self._name
        for measure, family, labels in (
            ("step_efficiency", families.goodput, ["step_efficiency"]),
            ("ettr", families.goodput, ["ettr"]),
            ("tokens_share", families.goodput, ["tokens_share"]),
            ("tokens_per_s", families.tokens_per_s, []),
            ("failure_replica_s", families.lost_s, ["failure"]),
            ("steady_replica_s", families.lost_s, ["steady"]),
        ):
            if isinstance(value := measures.get(measure), float | int):
                family.labels(name, *labels).set(value)
