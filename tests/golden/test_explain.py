"""`chaos explain` on recorded runs, whole, cut and broken: the facts that a person needs are in the text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos import registry
from chaos.api import events
from chaos.journal import NAME
from chaos.report.explain import WIDTH, explain
from tests.golden import recorded
from tests.golden.recorded import Recorded, lay_out
from tests.mutations import score  # noqa: F401
from tests.mutations.mutation import MUTATIONS, NotHere, Scene

LINES_MAX = 120


def told(run: Recorded, folder: Path) -> str:
    """The account in one line, as it was wrapped for reading only."""
    return " ".join(explain(lay_out(run, folder / "run")).split())


@pytest.mark.parametrize("name", recorded.names())
def test_every_recorded_run_is_told_in_order_and_in_bounds(name: str, tmp_path: Path) -> None:
    run = recorded.load(name)
    text = explain(lay_out(run, tmp_path / "run"))
    assert text.startswith(f"PASS: {run.plan.experiment.name}\n")
    assert ": the job kept its promises." in " ".join(text.split())
    assert "What was not passed" not in text
    assert len(text.splitlines()) <= LINES_MAX
    assert max(map(len, text.splitlines())) <= WIDTH + 12
    times = [float(time) for time in re.findall(r"^ *(\d+\.\d) s  ", text, re.MULTILINE)]
    assert times == sorted(times)
    faults = [event for event in run.events if isinstance(event, events.FaultStarted)]
    for fault in faults[:16]:
        assert f"{fault.fault} hit " in text


def test_a_killed_replica_and_its_way_back(tmp_path: Path) -> None:
    text = told(recorded.load("replica-lost"), tmp_path)
    (born,) = re.findall(r"replica-2 was started again on (node-\d) as life 2", text)
    assert born in recorded.load("replica-lost").plan.topology.nodes()
    assert "pod.kill hit replica-2 (step" in text
    assert registry.summary(registry.faults()["pod.kill"]) in text
    assert re.search(r"Proven within \d+ ms: main process \d+ is gone", text)
    assert re.search(r"replica-0 and replica-1 went on: the next commit came [\d.]+( to [\d.]+)? s after the hit", text)
    assert "They had formed quorum 2, with 2 participants" in text
    assert re.search(r"had its trainer built [\d.]+ s later, took the state of step \d+ from replica-\d in", text)
    assert re.search(r"committed step \d+ in quorum 3, [\d.]+ s after the hit", text)
    assert re.search(r"\d+ steps had been trained without it", text)
    assert "its state was the same as that of its peers" in text


def test_a_frozen_replica_comes_back_in_the_same_life(tmp_path: Path) -> None:
    text = told(recorded.load("process-freeze"), tmp_path)
    assert re.search(r"process.freeze was over, 1\d\.\d s after it began", text)
    assert re.search(r"replica-\d went on in the same life: it took the state of step \d+ from replica-\d", text)
    assert "s after the fault's end and" in text


def test_a_lost_lighthouse_and_what_it_cost(tmp_path: Path) -> None:
    text = told(recorded.load("lighthouse-kill"), tmp_path)
    assert re.search(r"lighthouse was started again, [\d.]+ s after the hit", text)
    assert re.search(r"Nobody committed a new step for [\d.]+ s after step \d+", text)


def test_what_was_tried_in_vain_is_told_with_its_reason(tmp_path: Path) -> None:
    text = told(recorded.load("heal-kill-donor"), tmp_path)
    assert re.search(r"steps? tried in vain by replica-\d[^:]* \d+\.\d s: RuntimeError: ", text)


def broken(name: str, mutation: str, tmp_path: Path) -> str:
    return told(MUTATIONS[mutation].applied(recorded.load(name), 1), tmp_path)


def test_a_split_job(tmp_path: Path) -> None:
    text = broken("replica-lost", "job_splits_in_two", tmp_path)
    assert text.startswith("FAIL: replica-lost")
    assert "the job broke a promise: one_quorum: step" in text
    assert re.search(r"one_quorum FAIL: step \d+ was committed by .* seen at \d+\.\d s \(event \d+\): replica-\d", text)


def test_a_survivor_that_dies(tmp_path: Path) -> None:
    text = broken("replica-lost", "survivor_dies", tmp_path)
    assert re.search(r"Not planned: replica-[01] ended, life 1, ", text)
    assert "no_collateral FAIL" in text


def test_a_false_alarm_of_the_job_itself(tmp_path: Path) -> None:
    text = broken("replica-lost", "taken_for_silent", tmp_path)
    assert re.search(r"Not planned: replica-\d was silent, the others were told not to wait for it\.", text)
    assert "Not planned" not in broken("replica-lost", "loss_is_told", tmp_path / "other")


def test_a_replica_that_stays_away(tmp_path: Path) -> None:
    text = broken("replica-lost", "victim_never_returns", tmp_path)
    assert "replica-2 did not come back before the end: no new life of it began." in text


def test_states_that_differ(tmp_path: Path) -> None:
    text = broken("replica-lost", "replica_comes_back_with_another_state", tmp_path)
    assert "its state was NOT that of its peers" in text
    assert re.search(r"States of replicas differed at \d+ of \d+ compared steps, first after step \d+", text)


def test_two_lives_at_once(tmp_path: Path) -> None:
    text = broken("replica-lost", "dead_replica_trains_on_beside_its_successor", tmp_path)
    assert "replica-2 lived twice at once: its life 1 still tried 1 step after life 2 had begun." in text


def test_a_blind_window(tmp_path: Path) -> None:
    text = broken("replica-lost", "commits_in_a_blind_window", tmp_path)
    assert text.startswith("UNKNOWN: replica-lost")
    assert re.search(r"Blind: \d+ events? of replica-\d did not arrive \(stream closed\)", text)


def test_a_thousand_discards_stay_readable(tmp_path: Path) -> None:
    run = recorded.load("process-kill")
    commit = next(e for e in run.events if isinstance(e, events.Step) and e.step == 15)
    at = {"committed": False, "tokens": 0, "digest": None}
    vain = [
        msgspec.structs.replace(commit, **at, t_s=commit.t_s - 0.001, error=f"[/a/b/c.cc:{n}] Timed out after {n}ms")
        for n in range(1000)
    ]
    text = told(Scene(run, Random(0)).inserted(commit, *vain, before=True), tmp_path)
    assert f"1000 steps tried in vain by {commit.member}" in text
    assert text.count("Timed out after") == 1


def test_a_replica_that_falls_behind_again_and_again_is_told_of_once(tmp_path: Path) -> None:
    run = recorded.load("steady")
    commits = [e for e in run.events if isinstance(e, events.Step) and e.member == "replica-1" and e.step > 5]
    for commit in commits:
        taken = {"step": commit.step - 1, "source": "replica-0", "incarnation": commit.incarnation}
        heal = events.HealEnded(t_s=commit.t_s - 0.001, member=commit.member, **taken)
        run = Scene(run, Random(0)).inserted(commit, heal, before=True)
    text = told(run, tmp_path)
    assert text.count("fell behind") == 1
    assert f"replica-1, which no fault was to take out, fell behind {len(commits)} times from" in text
    assert f"it took the state of step {commits[-1].step - 1} from replica-0." in text


def test_fifty_faults_stay_readable(tmp_path: Path) -> None:
    run = recorded.load("process-kill")
    told_of = [e for e in run.events if getattr(e, "fault_id", None)]
    many = [msgspec.structs.replace(e, fault_id=f"more-{n}") for n in range(50) for e in told_of]
    crowded = Scene(run, Random(0)).inserted(told_of[-1], *many)
    text = explain(lay_out(crowded, tmp_path / "run"))
    assert len(text.splitlines()) <= LINES_MAX
    assert "35 more faults did less harm than these: 35 x process.kill" in text


@settings(max_examples=40)
@given(name=st.sampled_from(recorded.names()), mutation=st.sampled_from(sorted(MUTATIONS)), seed=st.integers(0, 99))
def test_whatever_a_journal_holds_it_is_told(tmp_path_factory, name: str, mutation: str, seed: int) -> None:
    try:
        run = MUTATIONS[mutation].applied(recorded.load(name), seed)
    except NotHere:
        return
    text = explain(lay_out(run, tmp_path_factory.mktemp("told") / "run"))
    assert len(text.splitlines()) <= LINES_MAX
    assert ("What was not passed" in text) is not text.startswith("PASS")


@settings(max_examples=20)
@given(name=st.sampled_from(recorded.names()), share=st.floats(0.0, 0.99))
def test_a_journal_that_was_cut_is_told_to_its_end(tmp_path_factory, name: str, share: float) -> None:
    run = recorded.load(name)
    folder = lay_out(run, tmp_path_factory.mktemp("cut") / "run")
    whole = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(whole[: int(len(whole) * share)])
    text = " ".join(explain(folder).split())
    assert text.startswith(f"UNKNOWN: {run.plan.experiment.name}")
    assert "Here the journal stops, after" in text
    assert "The run: the journal has no end: the run was cut off." in text


def test_another_plan_is_said(tmp_path: Path) -> None:
    run = recorded.load("replica-lost")
    changed = msgspec.structs.replace(run.plan, experiment=msgspec.structs.replace(run.plan.experiment, seed=99))
    assert "plan.json was changed or exchanged" in told(replace(run, plan=changed), tmp_path)


def test_what_is_no_run_is_refused(chaos, tmp_path: Path) -> None:
    done = chaos("explain", str(tmp_path / "nothing"))
    assert (done.returncode, done.stdout) == (64, "")
    assert "nothing is not the folder of a run" in done.stderr


def test_the_command_prints_the_account(chaos, tmp_path: Path) -> None:
    folder = lay_out(recorded.load("replica-lost"), tmp_path / "run")
    done = chaos("explain", str(folder))
    assert (done.returncode, done.stdout.strip()) == (0, explain(folder).strip())
