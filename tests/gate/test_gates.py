"""Whole gates through the `chaos` program, on local pods, with the toy job: what passes, what is caught, and why."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import junitparser
import msgspec
import pytest

from chaos.gate.suite import shipped
from chaos.model.gate import Gate
from chaos.model.verdict import Outcome
from tests.conftest import CHAOS

TOY = ("--set", "workload.program=toyjob", "--set", "workload.recipe=toy", "--set", "workload.steps=4000")


def gate(runs: Path) -> Gate:
    (only,) = runs.glob("*-gate-smoke/gate.json")
    return msgspec.json.decode(only.read_bytes(), type=Gate)


def outcomes(one: Gate) -> dict[str, str]:
    return {reading.objective: reading.outcome.value for each in one.experiments for reading in each.readings}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, chaos_env) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The shipped smoke gate on a correct job, recorded as a baseline; its folder, and what was printed."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "smoke.yaml").write_text(shipped()["smoke"].replace("baseline_runs: 20", "baseline_runs: 6"))
    command = [
        CHAOS,
        "gate",
        "smoke.yaml",
        *TOY,
        "--baseline",
        "baseline.json",
        "--update-baseline",
        "--junit",
        "junit.xml",
    ]
    done = subprocess.run(command, cwd=folder, env=chaos_env, capture_output=True, text=True, timeout=300)
    return folder, done


def test_a_correct_job_passes_and_becomes_the_baseline(recorded):
    folder, done = recorded
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(outcomes(gate(folder / "runs")).values()) == {"PASS"}
    assert "PASS  smoke: 5 objectives met" in done.stdout
    assert (folder / "baseline.json").is_file()
    assert "of gates of a job that has not changed pass with worse_by_max: " in done.stdout
    parsed = junitparser.JUnitXml.fromfile(str(folder / "junit.xml"))
    assert (parsed.tests, parsed.failures, parsed.errors) == (5, 0, 0)
    (made,) = (folder / "runs").iterdir()
    assert len(list(made.glob("*/verdict.json"))) == 6
    assert (made / "gate.md").read_text().startswith("## PASS: gate smoke")
    links = re.findall('href="([^"]*)"', (made / "gate.html").read_text())
    reports = [link for link in links if link.endswith("report.html")]
    assert len(reports) == 6 and all((made / link).is_file() for link in reports)


@pytest.mark.parametrize(
    ("defect", "objective"),
    [
        ("restarts_late", "replicas_rejoin.recovery_s no more than 1.4 times worse than the baseline"),
        ("notices_late", "survivors_continue.gap_s no more than 1.4 times worse than the baseline"),
        ("skips_commits", "median of goodput.step_efficiency at least 0.9"),
        ("healed_state_differs", "no safety property is broken"),
    ],
)
def test_a_regression_is_caught_by_the_objective_that_it_breaks(recorded, chaos, tmp_path, defect, objective):
    baseline = recorded[0] / "baseline.json"
    settings = ("--set", f"workload.settings={{defect: {defect}}}")
    done = chaos("gate", "smoke", *TOY, *settings, "--baseline", str(baseline), timeout_s=300)
    assert done.returncode == 1, done.stdout + done.stderr
    assert outcomes(gate(tmp_path / "runs"))[objective] == "FAIL", done.stdout
    assert f"toyjob toy, now toyjob toy defect={defect}" in done.stdout


def test_a_gate_whose_fault_did_not_strike_is_unknown(chaos, tmp_path):
    never = ("--set", "faults.0.at={event: heal_ended}", "--set", "disturb_timeout_s=1")
    done = chaos("gate", "smoke", *TOY, *never, "--junit", "junit.xml")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "UNKNOWN  smoke: 2 runs proved nothing, the last of replica-lost: " in done.stdout
    parsed = junitparser.JUnitXml.fromfile(str(tmp_path / "junit.xml"))
    assert (parsed.failures, parsed.errors) == (0, 5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_gate_goes_on_and_makes_no_run_twice(chaos, chaos_env, tmp_path, number):
    command = [CHAOS, "gate", "smoke", *TOY]
    with subprocess.Popen(command, cwd=tmp_path, env=chaos_env, stdout=subprocess.PIPE, text=True) as going:
        assert going.stdout is not None
        for line in going.stdout:
            if "(2 of 5)" in line:
                going.send_signal(number)
                break
        going.stdout.read()
        assert going.wait(60) == (2 if number == signal.SIGINT else -number)
    before = gate(tmp_path / "runs")
    assert (before.outcome, before.complete, len(before.experiments[0].runs)) == (Outcome.UNKNOWN, False, 2)
    (folder,) = (tmp_path / "runs").iterdir()
    done = chaos("gate", "smoke", *TOY, "--resume", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    after = gate(tmp_path / "runs")
    assert [run.seed for run in after.experiments[0].runs] == [1, 2, 3, 4, 5]
    assert after.experiments[0].runs[:2] == before.experiments[0].runs
    done = chaos("gate", "smoke", *TOY, "--set", "faults.0.at.step=13", "--resume", str(folder))
    assert done.returncode == 64
    assert "its suite was" in done.stderr


def test_the_budget_ends_a_gate_undecided_and_in_order(chaos, tmp_path):
    done = chaos("gate", "smoke", *TOY, "--set", "quiesce.common_steps=3000", "--budget-s", "1")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the budget of 1 s is used up" in done.stdout
    (journal,) = tmp_path.glob("runs/*/*/journal.jsonl")
    assert '"kind":"run_ended"' in journal.read_text().splitlines()[-1]
    assert gate(tmp_path / "runs").experiments[0].runs == ()
