"""Whole experiments through the `chaos` program, on real local pods, with a job that needs no torch."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from chaos import journal
from chaos.load import KNOWN_BUGS
from chaos.model.events import MemberStarted, PhaseStarted, RunEnded
from chaos.model.verdict import Outcome, Verdict
from tests.conftest import CHAOS

TOY = ("--set", "workload.program=toyjob", "--set", "workload.recipe=toy", "--set", "workload.steps=4000")


def run_dir(tmp_path: Path) -> Path:
    (only,) = (tmp_path / "runs").iterdir()
    return only


def verdict(folder: Path) -> Verdict:
    return msgspec.json.decode((folder / "verdict.json").read_bytes(), type=Verdict)


def outcomes(folder: Path) -> dict[str, str]:
    return {finding.monitor: finding.outcome.value for finding in verdict(folder).findings}


@pytest.fixture(params=["namespaces", "user-namespaces", "processes"])
def isolation(request) -> str:
    from chaos.platforms.local import doctor

    if request.param not in doctor.available():
        pytest.skip(f"this machine refuses {request.param}")
    return request.param


def test_a_lost_replica_comes_back(chaos, tmp_path, isolation):
    done = chaos("run", "replica-lost", *TOY, "--isolation", isolation)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = run_dir(tmp_path)
    assert set(outcomes(folder).values()) == {"PASS"}
    assert verdict(folder).isolation == isolation
    assert "PASS  replica-lost" in done.stdout
    assert str(folder / "report.html") in done.stdout
    assert (folder / "report.html").stat().st_size and (folder / "report.md").stat().st_size
    events = list(journal.Reading(folder / "journal.jsonl").events())
    assert [e.phase for e in events if isinstance(e, PhaseStarted)] == [
        "deploy", "baseline", "disturb", "quiesce", "drain",
    ]  # fmt: skip
    assert isinstance(events[-1], RunEnded)
    lives = [e.member for e in events if isinstance(e, MemberStarted)]
    (victim,) = {member for member in lives if lives.count(member) == 2}
    assert victim in done.stdout


def test_the_control_run_passes(chaos, tmp_path):
    done = chaos("run", "steady", *TOY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert outcomes(run_dir(tmp_path))["fault_in_force"] == "PASS"


def test_check_gives_the_same_verdict_from_the_journal_alone(chaos, tmp_path):
    assert chaos("run", "replica-lost", *TOY).returncode == 0
    folder = run_dir(tmp_path)
    said = verdict(folder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("plan.json", "journal.jsonl"):
        shutil.copy(folder / name, elsewhere)
    shutil.rmtree(folder)
    done = chaos("check", "--json", str(elsewhere))
    assert done.returncode == 0
    assert msgspec.json.decode(done.stdout, type=Verdict) == said


def test_without_respawn_the_replica_is_missed(chaos, tmp_path):
    done = chaos("run", "replica-lost", *TOY, "--set", "topology.restart=never", "--set", "quiesce.timeout_s=5")
    assert done.returncode == 1, done.stdout + done.stderr
    assert outcomes(run_dir(tmp_path))["replicas_rejoin"] == "FAIL"


@pytest.mark.parametrize(
    ("experiment", "defect", "monitor"),
    [
        ("replica-lost", "survivor_dies_at_rejoin", "no_collateral"),
        ("replica-lost", "healed_state_differs", "same_state"),
        ("known-bugs/job-leftover", "takes_strangers", "one_quorum"),
        ("gradient-nan", "commits_nan", "finite_loss"),
    ],
)
def test_a_defect_of_the_job_is_seen_and_ends_the_run(chaos, tmp_path, experiment, defect, monitor):
    done = chaos("run", experiment, *TOY, "--set", f"workload.settings={{defect: {defect}}}")
    expected = experiment.startswith(KNOWN_BUGS)
    assert done.returncode == (0 if expected else Outcome.FAIL.exit_code), done.stdout + done.stderr
    folder = run_dir(tmp_path)
    assert outcomes(folder)[monitor] == "FAIL"
    journal = (folder / "journal.jsonl").read_text()
    assert "safety_broken" in journal
    assert "revert_failed" not in journal


def test_a_job_that_never_commits_gets_no_fault_and_no_verdict(chaos, tmp_path):
    settings = ("--set", "workload.settings={defect: never_commits}", "--set", "baseline.timeout_s=3")
    done = chaos("run", "replica-lost", *TOY, *settings)
    assert done.returncode == 2, done.stdout + done.stderr
    text = (run_dir(tmp_path) / "journal.jsonl").read_text()
    assert "fault_started" not in text
    assert '"phase":"drain"' in text


def test_a_changed_plan_is_no_pass(chaos, tmp_path):
    assert chaos("run", "replica-lost", *TOY).returncode == 0
    folder = run_dir(tmp_path)
    plan = json.loads((folder / "plan.json").read_text())
    plan["experiment"]["monitors"] = {}
    (folder / "plan.json").write_text(json.dumps(plan))
    done = chaos("check", str(folder))
    assert done.returncode == 2
    assert "plan.json was changed" in done.stdout
    assert "verdict.json said PASS" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_gives_everything_back_and_is_unknown(tmp_path, chaos_env, number):
    with subprocess.Popen(
        [CHAOS, "run", "steady", *TOY, "--set", "quiesce.common_steps=3000"],
        cwd=tmp_path,
        env=chaos_env,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if "phase: quiesce" in line:
                running.send_signal(number)
                break
        rest = running.stdout.read()
        assert running.wait(60) == 2, rest
    assert "the run was broken off: interrupted" in rest
    assert verdict(run_dir(tmp_path)).outcome is Outcome.UNKNOWN
    events = journal.Reading(run_dir(tmp_path) / "journal.jsonl").events()
    pids = [event.pid for event in events if isinstance(event, MemberStarted)]
    assert len(pids) == 5
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_reader_that_leaves_does_not_end_the_run(tmp_path, chaos_env):
    with subprocess.Popen([CHAOS, "run", "steady", *TOY], cwd=tmp_path, env=chaos_env, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()
        run.stdout.close()
        assert run.wait(60) == 0
    assert verdict(run_dir(tmp_path)).outcome is Outcome.PASS


def test_a_report_that_cannot_be_written_is_told_and_the_verdict_stands(tmp_path, chaos_env):
    command = [CHAOS, "run", "steady", *TOY]
    with subprocess.Popen(
        command, cwd=tmp_path, env=chaos_env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        run.stdout.readline()
        folder = run_dir(tmp_path)
        (folder / "report.html").mkdir()
        printed = run.stdout.read()
        assert run.wait(60) == 0, printed
    assert printed.index("PASS  steady") < printed.index("the verdict stands, but")
    assert f"type: chaos report {folder}" in printed
    assert verdict(folder).outcome is Outcome.PASS
