"""The fold of a journal into metrics: the monitors' numbers, the states of the moment, no more series than said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from chaos import registry
from chaos.api import CpuLimit, Monitor, events
from chaos.check import Judges
from chaos.metrics.fold import Metrics
from chaos.model.gate import Gate, GateExperiment, GateRun, Reading
from chaos.model.history import History
from chaos.model.plan import Plan
from chaos.model.verdict import Finding, Outcome, Verdict
from tests.golden import recorded
from tests.mutations import score  # noqa: F401
from tests.mutations.mutation import MUTATIONS, NotHere
from tests.unit.monitors.journals import Story, frozen, frozen_and_back, lost, lost_and_back, node_off_and_back, steady

Value = float | None


LEFT_OUT = (
    events.RunStarted, events.FaultStarted, events.InjectionInForce, events.InjectionReverted, events.FaultEnded,
    events.MemberStarted, events.MemberExited, events.TrainerStarted, events.Quorum, events.HealEnded, events.Step,
)  # fmt: skip


class Told:
    """What a run's metrics say at its end."""

    def __init__(
        self, plan: Plan, told: Iterable[events.Event], metrics: Metrics | None = None, run: str = "a-folder"
    ) -> None:
        self.metrics = metrics or Metrics()
        self.plan, self.history = plan, History(plan.topology)
        see = self.metrics.begin(plan, run)
        for event in told:
            self.history.apply(event)  # type: ignore[arg-type]
            see(event, self.history)  # type: ignore[arg-type]

    def __call__(self, name: str, **labels: str) -> Value:
        labels["experiment"] = self.plan.experiment.name
        return self.metrics.registry.get_sample_value(f"torchchaos_{name}", labels)

    def all(self, name: str) -> dict[tuple[str, ...], float]:
        """Every sample of a name, by its labels but for the experiment."""
        return {
            tuple(value for label, value in sorted(sample.labels.items()) if label != "experiment"): sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == f"torchchaos_{name}"
        }


def told(story: Story, metrics: Metrics | None = None) -> Told:
    return Told(story.plan, story.journal(), metrics)


def finding(name: str, plan: Plan, told_of: Iterable[events.Event]) -> Finding:
    kind: type[Monitor] = registry.monitors()[name]
    monitor, history = kind(plan, kind.limits()), History(plan.topology)
    for event in told_of:
        history.apply(event)  # type: ignore[arg-type]
        if isinstance(event, kind.watches):
            monitor.observe(event, history)  # type: ignore[arg-type]
    return monitor.conclude(history)


def phases(measures: Mapping[str, float | int | str | None], names: Mapping[str, str]) -> dict[str, float]:
    return {phase: float(value) for phase, name in names.items() if (value := measures.get(name)) is not None}


PARTS = ("respawn", "heal", "first_commit", "exit", "restart", "boot", "join", "heal_wait", "transfer")
RECOVERY = {name: f"{name}_s" for name in ("recovery", *PARTS)}
SURVIVORS = {
    "failed_step": "failed_step_s", "requorum": "requorum_s", "first_commit": "first_gap_s", "last_commit": "gap_s",
}  # fmt: skip


@pytest.fixture(params=recorded.names())
def run(request: pytest.FixtureRequest) -> recorded.Recorded:
    return recorded.load(request.param)


def test_the_numbers_are_those_of_the_monitors(run: recorded.Recorded) -> None:
    got = Told(run.plan, run.events)
    for name, family, known in (
        ("replicas_rejoin", "recovery_seconds", RECOVERY),
        ("survivors_continue", "survivor_wait_seconds", SURVIVORS),
    ):
        if name in run.judges:
            measures = phases(finding(name, run.plan, run.events).measures, known)
            sums: dict[str, float] = {}
            counts: dict[str, float] = {}
            for (_, phase), value in got.all(f"{family}_sum").items():
                sums[phase] = sums.get(phase, 0.0) + value
            for (_, phase), value in got.all(f"{family}_count").items():
                counts[phase] = counts.get(phase, 0.0) + value
            if max(counts.values(), default=0.0) <= 1:
                assert sums == pytest.approx(measures)
            else:  # The monitor tells of the worst of several.
                longest = "recovery" if name == "replicas_rejoin" else "last_commit"
                assert measures[longest] <= sums[longest] <= counts[longest] * measures[longest] + 1e-9
    goodput = finding("goodput", run.plan, run.events).measures
    assert got("goodput_ratio", measure="step_efficiency") == goodput["step_efficiency"]
    assert got("goodput_ratio", measure="ettr") == goodput["ettr"]
    assert got("goodput_ratio", measure="tokens_share") == goodput["tokens_share"]
    assert got("tokens_per_second") == goodput["tokens_per_s"]
    state = finding("same_state", run.plan, run.events).measures
    assert got("digests_compared_total") == state["steps_compared"]
    assert got("digest_mismatches_total") == 0


def test_at_the_end_nothing_is_going_on(run: recorded.Recorded) -> None:
    got = Told(run.plan, run.events)
    assert got("run_active") == got("leftover_faults") == 0
    states = ("fault_active", "injections_held", "replica_away", "replica_due_timestamp_seconds", "member_alive")
    for name in (*states, "run_phase"):
        assert set(got.all(name).values()) <= {0}, name
    assert sum(got.all("replica_activity").values()) == len(run.plan.replicas())


def test_every_fault_is_counted_with_its_latency(run: recorded.Recorded) -> None:
    got = Told(run.plan, run.events)
    for name, kind in (
        ("faults_started_total", events.FaultStarted),
        ("injection_latency_seconds_count", events.InjectionInForce),
        ("revert_latency_seconds_count", events.InjectionReverted),
    ):
        assert sum(got.all(name).values()) == sum(isinstance(event, kind) for event in run.events), name


def test_steps_tokens_and_quorums_are_counted_for_each_replica() -> None:
    got = told(lost_and_back())
    assert got.all("steps_total") == {
        ("replica-0", "committed"): 39, ("replica-0", "discarded"): 1,
        ("replica-1", "committed"): 22, ("replica-1", "discarded"): 0,
        ("replica-2", "committed"): 39, ("replica-2", "discarded"): 1,
    }  # fmt: skip
    # The step in which it heals is committed, and not trained by it.
    assert got.all("tokens_total") == {("replica-0",): 39 * 8, ("replica-1",): 21 * 8, ("replica-2",): 39 * 8}
    assert got.all("quorum_changes_total") == {("replica-0",): 2, ("replica-1",): 1, ("replica-2",): 2}
    assert got.all("heals_total") == {("replica-0",): 0, ("replica-1",): 1, ("replica-2",): 0}
    assert got("step") == 39
    assert got("loss", replica="replica-0") == pytest.approx(1 / 39)


def test_what_is_done_in_drain_counts_for_nothing() -> None:
    story = steady()
    late = [event for event in story.told if isinstance(event, events.Step)][-1]
    story.told.append(msgspec.structs.replace(late, t_s=story.now_s + 1.0, step=late.step + 1))
    got = Told(story.plan, sorted(story.journal(), key=lambda event: event.t_s))
    assert got("steps_total", replica=late.member, result="committed") == 30


def test_a_killed_replica_is_away_and_due_until_it_is_back() -> None:
    story = lost()
    got = told(story)
    (hit,) = [event for event in story.told if isinstance(event, events.InjectionInForce)]
    assert got.all("replica_away") == {("replica-0",): 0, ("replica-1",): 1, ("replica-2",): 0}
    assert got("replica_due_timestamp_seconds", replica="replica-1") == hit.t_s
    story.say(events.FaultEnded, "runner", fault_id="fault-0")
    assert told(story).all("fault_active") == {("pod.kill", "replica-1"): 1}
    story.restart("replica-1").build("replica-1").join("replica-1").train(1)
    got = told(story)
    assert got("replica_away", replica="replica-1") == got("replica_due_timestamp_seconds", replica="replica-1") == 0
    assert got.all("fault_active") == {("pod.kill", "replica-1"): 0}


def test_the_way_back_counts_once_the_fault_has_ended() -> None:
    """A fault that comes and goes lets its victim train in between: that is no return yet."""
    story = Story().deploy().train(12).phase("disturb").freeze("replica-1").wait(1.0).regroup().train(2)
    story.release().join("replica-1").train(2)
    assert told(story).all("recovery_seconds_count") == {}
    story.say(events.FaultEnded, "runner", fault_id="fault-0").train(1)
    assert told(story).all("recovery_seconds_count")["process.freeze", "recovery"] == 1


def test_a_held_fault_keeps_its_victim_from_being_due() -> None:
    story = Story().deploy().train(12).phase("disturb").freeze("replica-1")
    got = told(story)
    assert got("replica_away", replica="replica-1") == 1
    assert got("replica_due_timestamp_seconds", replica="replica-1") == 0
    assert got.all("injections_held") == {("process.freeze", "replica-1"): 1}
    got = told(story.wait(3.0).release())
    assert got("replica_due_timestamp_seconds", replica="replica-1") == pytest.approx(story.now_s)
    assert got.all("injections_held") == {("process.freeze", "replica-1"): 0}


def test_a_node_takes_its_replicas_out() -> None:
    story = node_off_and_back()
    (proof,) = [event for event in story.journal() if isinstance(event, events.InjectionInForce)]
    got = Told(story.plan, story.journal()[: proof.seq + 1])
    assert [replica for (replica,), away in got.all("replica_away").items() if away] == ["replica-1", "replica-3"]


def test_a_fault_that_removes_nobody_takes_nobody_out() -> None:
    story = Story().deploy().train(12).phase("disturb")
    story.strike("cpu.starve", CpuLimit("replica-1", 0.2), removes=False).train(3)
    got = told(story)
    assert set(got.all("replica_away").values()) == {0}
    assert got("survivor_wait_seconds_count", fault="cpu.starve", phase="last_commit") == 1


def test_who_is_hit_again_need_not_come_back_from_the_first_hit() -> None:
    story = lost().say(events.FaultEnded, "runner", fault_id="fault-0").restart("replica-1").kill("replica-1")
    story.say(events.FaultEnded, "runner", fault_id="fault-1")
    assert told(story).all("fault_active") == {("pod.kill", "replica-1"): 1}
    story.restart("replica-1").build("replica-1").join("replica-1").train(2)
    got = told(story)
    assert got.all("fault_active") == {("pod.kill", "replica-1"): 0}
    assert got("recovery_seconds_count", fault="pod.kill", phase="recovery") == 1


@pytest.mark.parametrize("said", [True, False])
def test_what_stays_behind_is_told(said: bool) -> None:
    story = frozen_and_back()
    story.drop(lambda event: isinstance(event, events.InjectionReverted))
    if said:
        (proof,) = [event for event in story.told if isinstance(event, events.InjectionInForce)]
        fate = {"fault_id": proof.fault_id, "injection": proof.injection, "reason": "the agent is gone"}
        story.told.append(events.RevertFailed(t_s=proof.t_s + 1, member="runner", **fate))
    got = told(story)
    assert got("leftover_faults") == got("injections_held", fault="process.freeze", target="replica-1") == 1
    assert got("reverts_failed_total", fault="process.freeze") == said


def test_who_commits_without_its_peers_is_not_back() -> None:
    story = frozen().say(events.FaultEnded, "runner", fault_id="fault-0").train(3)
    theirs = next(event for event in reversed(story.told) if isinstance(event, events.Step))
    alone = msgspec.structs.replace(theirs, t_s=theirs.t_s + 0.001, member="replica-1", quorum_id=99)
    story.told.append(alone)
    assert told(story)("replica_away", replica="replica-1") == 1
    story.told[-1] = msgspec.structs.replace(alone, quorum_id=theirs.quorum_id)
    assert told(story)("replica_away", replica="replica-1") == 0


def test_nobody_is_away_once_the_run_is_over() -> None:
    got = told(lost().drain().end())
    away = got.all("replica_away") | got.all("replica_due_timestamp_seconds") | got.all("fault_active")
    assert set(away.values()) == {0}


def test_what_stays_behind_is_told_at_once() -> None:
    story = frozen().drop(lambda event: isinstance(event, events.InjectionReverted))
    (proof,) = [event for event in story.told if isinstance(event, events.InjectionInForce)]
    assert told(story)("leftover_faults") == 0
    story.say(events.RevertFailed, "runner", fault_id="fault-0", injection=proof.injection, reason="the agent is gone")
    assert told(story)("leftover_faults") == 1


def test_who_is_hit_as_well_is_no_survivor() -> None:
    """Its last try in vain is not the one that the survivors noticed the fault by."""
    story = Story().deploy().train(12).phase("disturb").wait(0.1)
    last = next(event for event in reversed(story.told) if isinstance(event, events.Step))
    story.told.append(msgspec.structs.replace(last, t_s=story.now_s + 0.005, step=13, committed=False, digest=None))
    assert last.member == "replica-2"
    story.kill("replica-1", "replica-2").wait(1.0).discard().regroup().train(5)
    got = told(story.drain().end())
    measured = finding("survivors_continue", story.plan, story.journal()).measures
    for phase, name in SURVIVORS.items():
        assert got("survivor_wait_seconds_sum", fault="pod.kill", phase=phase) == pytest.approx(measured[name])
    assert measured["failed_step_s"] == pytest.approx(1.0)


def test_a_survivor_that_is_hit_in_its_turn_is_not_waited_for() -> None:
    story = Story().deploy().train(12).phase("disturb").wait(0.1)
    story.kill("replica-1").kill("replica-2").wait(1.0).discard().regroup().train(5)
    assert told(story)("survivor_wait_seconds_count", fault="pod.kill", phase="last_commit") == 2


def test_an_end_out_of_order_that_was_proven_leaves_nothing() -> None:
    story = frozen()
    (proof,) = [event for event in story.told if isinstance(event, events.InjectionInForce)]
    story.say(events.RevertFailed, "runner", fault_id="fault-0", injection=proof.injection, reason="lost, then undone")
    got = told(story)
    assert (got("reverts_failed_total", fault="process.freeze"), got("leftover_faults")) == (1, 0)


def test_states_that_differ_are_counted_by_step() -> None:
    story = Story().deploy().train(5).train(2, lambda member, step: f"{step} {member == 'replica-1'}").train(3)
    got = told(story)
    assert (got("digests_compared_total"), got("digest_mismatches_total")) == (10, 2)


def test_broken_safety_and_blind_windows_are_counted() -> None:
    story = steady().say(events.SafetyBroken, "runner", monitor="one_quorum", reading="a split")
    got = told(story.say(events.EventsLost, "replica-0", reason="stream closed"))
    assert got("safety_broken_total", monitor="one_quorum") == 1
    assert got.all("blind_windows_total")["replica-0",] == 1


def test_a_gate_adds_its_runs_up_and_shows_the_newest() -> None:
    metrics, story = Metrics(), lost_and_back()
    (proof,) = [event for event in story.told if isinstance(event, events.InjectionInForce)]
    story.told.append(events.FaultEnded(t_s=proof.t_s + 0.01, member="runner", fault_id=proof.fault_id))
    first, second = (Told(story.plan, story.journal(), metrics, run) for run in ("first", "second"))
    assert first("steps_total", replica="replica-0", result="committed") == 2 * 39
    assert second("recovery_seconds_count", fault="pod.kill", phase="recovery") == 2
    assert second("step") == 39
    assert [run for *_, run, _ in second.all("run_info")] == ["second"]
    assert Told(story.plan, [], metrics, "third")("step") == 0


@pytest.mark.parametrize("outcome", Outcome)
def test_the_verdict(outcome: Outcome) -> None:
    got = told(steady())
    found = (Finding("one_quorum", outcome, "so it is"), Finding("goodput", Outcome.PASS, "good"))
    got.metrics.judged(got.plan, Verdict(outcome, "a-run", "processes", (), found))
    assert got.all("run_outcome") == {(one.value,): one is outcome for one in Outcome}
    assert got.all("runs_total") == {(one.value,): one is outcome for one in Outcome}
    assert got("run_success") == (outcome is Outcome.PASS)
    assert got("finding", monitor="one_quorum", property="safety", outcome=outcome.value) == 1
    assert got("finding", monitor="goodput", property="liveness", outcome="FAIL") == 0


def test_a_run_that_was_cut_off_does_not_go_on_for_ever() -> None:
    got = told(lost())
    assert got("run_active") == got("run_phase", phase="quiesce") == 1
    got.metrics.judged(got.plan, Verdict(Outcome.UNKNOWN, "a-run", "processes", ("cut off",), ()))
    assert got("run_active") == got("run_phase", phase="quiesce") == 0


def test_a_gate_is_told_by_its_objectives() -> None:
    reading = Reading("p90 of gap_s", Outcome.FAIL, True, "too long", seen=5, value=9.0, bound=12.0, limit=10.0)
    runs = tuple(GateRun(f"run-{n}", n, Outcome.PASS, 50.0) for n in range(5))
    experiment = GateExperiment("a-run", "a test", "v", "j", 8, runs, (reading,))
    gate = Gate("smoke", "why", "s", Outcome.FAIL, True, "slow", 0.9, 1e9, 250.0, {}, {}, (experiment,))
    metrics = Metrics()
    metrics.gated(gate)

    def value(name: str, **labels: str) -> Value:
        return metrics.registry.get_sample_value(f"torchchaos_gate_{name}", {"gate": "smoke", **labels})

    of = {"experiment": "a-run", "objective": "p90 of gap_s"}
    assert (
        value("outcome", outcome="FAIL") == value("complete") == value("objective_outcome", outcome="FAIL", **of) == 1
    )
    assert value("outcome", outcome="PASS") == value("objective_outcome", outcome="PASS", **of) == 0
    measured = [value(f"objective_{name}", **of) for name in ("value", "bound", "limit")]
    assert measured == [9.0, 12.0, 10.0]
    assert value("runs", experiment="a-run", outcome="PASS") == 5
    assert (value("runs_wanted", experiment="a-run"), value("duration_seconds")) == (8, 250.0)
    assert series(metrics) <= 6 + 4 * 1 + 6 * 1


def series(metrics: Metrics) -> int:
    return sum(not line.startswith("#") for line in metrics.text().splitlines())


def bound(plan: Plan) -> int:
    """What `dashboards/README.md` says of one experiment."""
    faults = {fault.fault for fault in plan.faults}
    members = len(plan.topology.placements)
    targets = members + len(plan.topology.nodes())
    monitors = len(Judges(plan).monitors)
    return 30 + 4 * monitors + 22 * members + len(faults) * (230 + 2 * targets)


def test_there_are_no_more_series_than_said(run: recorded.Recorded) -> None:
    got = Told(run.plan, run.events)
    got.metrics.judged(run.plan, run.verdict())
    assert series(got.metrics) <= bound(run.plan)


@pytest.mark.parametrize("make", [lost_and_back, frozen_and_back])
def test_many_replicas_have_no_more_series_than_said(make) -> None:
    few, many = told(make(3)), told(make(64))
    for got in (few, many):
        assert series(got.metrics) <= bound(got.plan)
    assert series(many.metrics) - series(few.metrics) <= 61 * 22


def test_the_text_is_what_prometheus_reads(run: recorded.Recorded) -> None:
    got = Told(run.plan, run.events)
    families = list(text_string_to_metric_families(got.metrics.text()))
    assert len(families) == len(got.metrics.families.table)
    samples = [sample for family in families for sample in family.samples]
    assert len({(sample.name, *sorted(sample.labels.items())) for sample in samples}) == len(samples)
    assert all(isfinite(sample.value) for sample in samples)
    assert not [sample.name for sample in samples if sample.name.endswith("_created")]


def test_names_follow_the_conventions() -> None:
    for row in Metrics().families.table:
        assert row.name.startswith("torchchaos_")
        assert row.name.endswith("_total") is (row.kind == "counter"), row
        assert "_ms" not in row.name and "_mb" not in row.name
        assert row.meaning.endswith(".")
        assert row.labels[0] in ("experiment", "gate")


@settings(max_examples=60)
@given(name=st.sampled_from(recorded.names()), mutation=st.sampled_from(sorted(MUTATIONS)), seed=st.integers(0, 99))
def test_whatever_a_journal_holds_it_is_counted(name: str, mutation: str, seed: int) -> None:
    """A live run is not ended by those who watch it."""
    try:
        run = MUTATIONS[mutation].applied(recorded.load(name), seed)
    except NotHere:
        return
    Told(run.plan, run.events).metrics.judged(run.plan, run.verdict())


@settings(max_examples=30)
@given(name=st.sampled_from(recorded.names()), left_out=st.sets(st.sampled_from(list(LEFT_OUT)), min_size=1))
def test_what_is_missing_from_a_journal_ends_nothing(name: str, left_out: set[type[events.Event]]) -> None:
    run = recorded.load(name)
    got = Told(run.plan, [event for event in run.events if not isinstance(event, tuple(left_out))])
    assert series(got.metrics) <= bound(run.plan)
