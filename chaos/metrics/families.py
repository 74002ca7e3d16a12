"""The names: every metric with its labels and what it means. `dashboards/README.md` has the same table, made from this.

Base units, counters end in `_total`, what is one of several states is a series of 0 or 1 for each. No label holds free
text: values are names of experiments, members, nodes, faults, monitors, phases, gates and their objectives, so a job of
a given size has so many series and no more. What has not happened yet is 0, not absent, wherever its labels are known
beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

RECOVERY_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0)
"""Buckets of times that people wait for; the last one is far beyond the limits of monitors."""
LATENCY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)


@dataclass(frozen=True)
class Row:
    """One line of the documented table."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


class Families:
    """All metrics of one registry; `table` documents them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.table: list[Row] = []
        self._of_runs()
        self._of_replicas()
        self._of_faults()
        self._of_gates()

    def _of_runs(self) -> None:
        self.run_info = self._gauge(
            "run_info", "1 for the newest run of an experiment.",
            "experiment", "run", "recipe", "platform", "isolation", "seed",
        )  # fmt: skip
        self.run_active = self._gauge("run_active", "1 while a run goes on, from its start to its end.", "experiment")
        self.run_phase = self._gauge("run_phase", "1 for the phase that a run is in.", "experiment", "phase")
        self.run_start = self._gauge("run_start_timestamp_seconds", "When the newest run began.", "experiment")
        self.run_duration = self._gauge("run_duration_seconds", "How long the newest ended run took.", "experiment")
        self.runs = self._counter("runs", "Judged runs by their verdict.", "experiment", "outcome")
        self.outcome = self._gauge("run_outcome", "1 for the newest verdict.", "experiment", "outcome")
        self.success = self._gauge(
            "run_success", "1 when the newest run ended as it should: PASS, or a known bug as expected.", "experiment"
        )
        self.finding = self._gauge(
            "finding", "1 for what a monitor said of the newest run; `property` is safety, liveness or proof.",
            "experiment", "monitor", "property", "outcome",
        )  # fmt: skip
        self.safety_broken = self._counter(
            "safety_broken", "Safety monitors that spoke while a run went on.", "experiment", "monitor"
        )
        self.step = self._gauge("step", "The highest step that any replica committed.", "experiment")
        self.job_steps = self._gauge("job_steps", "The last step of the job.", "experiment")
        self.digests_compared = self._counter(
            "digests_compared", "Steps at which digests of two replicas or more were compared.", "experiment"
        )
        self.digest_mismatches = self._counter(
            "digest_mismatches", "Steps at which digests of replicas differed.", "experiment"
        )
        self.goodput = self._gauge(
            "goodput_ratio", "Of the run so far: `step_efficiency`, `ettr`, `tokens_share` as `goodput` has them.",
            "experiment", "measure",
        )  # fmt: skip
        self.tokens_per_s = self._gauge(
            "tokens_per_second",
            "Committed tokens per second of the run so far, from the first commit on.",
            "experiment",
        )
        self.lost_s = self._gauge(
            "lost_replica_seconds", "Time of replicas in which nothing was trained, around faults and at other times.",
            "experiment", "cause",
        )  # fmt: skip

    def _of_replicas(self) -> None:
        self.alive = self._gauge("member_alive", "1 while a member lives.", "experiment", "member", "role")
        self.activity = self._gauge(
            "replica_activity", "1 for what a replica is doing.", "experiment", "replica", "activity"
        )
        self.away = self._gauge(
            "replica_away", "1 from when a fault takes a replica out until it commits with a peer again.",
            "experiment", "replica",
        )  # fmt: skip
        self.due = self._gauge(
            "replica_due_timestamp_seconds", "Since when a replica that is away should come back; 0: not yet, or back.",
            "experiment", "replica",
        )  # fmt: skip
        self.steps = self._counter(
            "steps", "Steps that a replica tried: committed or discarded.", "experiment", "replica", "result"
        )
        self.tokens = self._counter(
            "tokens", "Tokens a replica trained in committed steps that were new to it.", "experiment", "replica"
        )
        self.loss = self._gauge("loss", "The loss of a replica's newest step.", "experiment", "replica")
        self.last_commit = self._gauge(
            "last_commit_timestamp_seconds", "When a replica committed last.", "experiment", "replica"
        )
        self.quorum_id = self._gauge("quorum_id", "The quorum that a replica is in.", "experiment", "replica")
        self.quorum_changes = self._counter(
            "quorum_changes", "How often a replica got a quorum of another id.", "experiment", "replica"
        )
        self.participants = self._gauge(
            "participants", "Replicas that contribute, as a replica was told last.", "experiment", "replica"
        )
        self.carried = self._gauge(
            "carried_bytes", "What a replica's newest life sent and received, by `path`: rdma or ethernet.",
            "experiment", "replica", "path",
        )  # fmt: skip
        self.heals = self._counter("heals", "States that a replica loaded from a peer.", "experiment", "replica")
        self.events_lost = self._counter(
            "blind_windows", "Times that events of a member were lost or could not be read.", "experiment", "member"
        )

    def _of_faults(self) -> None:
        self.fault_active = self._gauge(
            "fault_active", "Faults from their start until nothing is held and their victims are back.",
            "experiment", "fault", "target",
        )  # fmt: skip
        self.held = self._gauge(
            "injections_held", "Injections proven in force and not yet proven undone.", "experiment", "fault", "target"
        )
        self.leftover = self._gauge(
            "leftover_faults", "Injections that were not proven undone when they should have been.", "experiment"
        )
        self.faults_started = self._counter("faults_started", "Faults that were made.", "experiment", "fault")
        self.faults_missed = self._counter(
            "faults_missed", "Faults whose trigger or target never came.", "experiment", "fault"
        )
        self.injections_failed = self._counter(
            "injections_failed", "Injections that were not proven in force.", "experiment", "fault"
        )
        self.reverts_failed = self._counter(
            "reverts_failed", "Injections that ended out of order.", "experiment", "fault"
        )
        self.injection_latency = self._histogram(
            "injection_latency_seconds", "From the decision to the proof in force.", LATENCY_S, "experiment", "fault"
        )
        self.revert_latency = self._histogram(
            "revert_latency_seconds", "From the decision to the proof undone.", LATENCY_S, "experiment", "fault"
        )
        self.recovery = self._histogram(
            "recovery_seconds", "A victim's way back: `recovery` is the whole, the other phases are its parts.",
            RECOVERY_S, "experiment", "fault", "phase",
        )  # fmt: skip
        self.survivors = self._histogram(
            "survivor_wait_seconds", "From a fault in force to a sign among replicas that it left, the next commit of "
            "the first and of the last of them among these.", RECOVERY_S, "experiment", "fault", "phase",
        )  # fmt: skip

    def _of_gates(self) -> None:
        self.gate_outcome = self._gauge("gate_outcome", "1 for the newest outcome of a gate.", "gate", "outcome")
        self.gate_complete = self._gauge("gate_complete", "1 once a gate ended by itself, decided or not.", "gate")
        self.gate_start = self._gauge("gate_start_timestamp_seconds", "When the newest gate began.", "gate")
        self.gate_spent = self._gauge("gate_duration_seconds", "The time that the newest gate took so far.", "gate")
        self.gate_runs = self._gauge(
            "gate_runs", "Runs of the newest gate, as it counts them.", "gate", "experiment", "outcome"
        )
        self.gate_runs_wanted = self._gauge("gate_runs_wanted", "Runs that the suite asks for.", "gate", "experiment")
        of_objective = ("gate", "experiment", "objective")
        self.objective_outcome = self._gauge(
            "gate_objective_outcome", "1 for what the runs show of an objective.", *of_objective, "outcome"
        )
        self.objective_value = self._gauge("gate_objective_value", "What was measured for an objective.", *of_objective)
        self.objective_bound = self._gauge(
            "gate_objective_bound", "What it is at worst, with the gate's confidence.", *of_objective
        )
        self.objective_limit = self._gauge("gate_objective_limit", "What was asked for.", *of_objective)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(self._row(name, "gauge", meaning, labels), meaning, labels, registry=self._registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(self._row(f"{name}_total", "counter", meaning, labels), meaning, labels, registry=self._registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        full = self._row(name, "histogram", meaning, labels)
        return Histogram(full, meaning, labels, buckets=buckets, registry=self._registry)

    def _row(self, name: str, kind: str, meaning: str, labels: tuple[str, ...]) -> str:
        row = Row(f"torchchaos_{name}", kind, labels, meaning)
        self.table.append(row)
        return row.name
