"""`chaos metrics` and `--metrics` as a person types them."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest

from chaos.model.gate import RECORD, Gate, GateExperiment, GateRun
from chaos.model.verdict import Outcome
from tests.golden import recorded
from tests.unit.metrics.test_fold import Told

TOY = ("--set", "workload.program=toyjob", "--set", "workload.recipe=toy")


def lay_out_gate(folder: Path) -> Path:
    run = recorded.load("replica-lost")
    for number in (1, 2):
        recorded.lay_out(run, folder / f"run-{number}")
    runs = tuple(GateRun(f"run-{number}", number, Outcome.PASS, 50.0) for number in (1, 2))
    experiment = GateExperiment(run.name, "why", "v", "j", 2, runs)
    gate = Gate("smoke", "why", "s", Outcome.PASS, True, "all met", 0.9, 1e9, 100.0, {}, {}, (experiment,))
    (folder / RECORD).write_bytes(msgspec.json.encode(gate))
    return folder


def test_a_stored_run_has_the_numbers_of_its_journal(chaos, tmp_path: Path) -> None:
    run = recorded.load("replica-lost")
    done = chaos("metrics", str(recorded.lay_out(run, tmp_path / "a-folder")))
    assert done.returncode == 0, done.stderr
    told = Told(run.plan, run.events)
    told.metrics.judged(run.plan, run.verdict())
    assert done.stdout == told.metrics.text()


def test_a_gate_is_its_runs_and_its_outcome(chaos, tmp_path: Path) -> None:
    done = chaos("metrics", str(lay_out_gate(tmp_path / "gate")))
    assert done.returncode == 0, done.stderr
    assert 'torchchaos_gate_outcome{gate="smoke",outcome="PASS"} 1.0\n' in done.stdout
    assert 'torchchaos_runs_total{experiment="replica-lost",outcome="PASS"} 2.0\n' in done.stdout


def test_a_file_is_written_at_one_stroke(chaos, tmp_path: Path) -> None:
    folder = recorded.lay_out(recorded.load("steady"), tmp_path / "runs" / "a-folder")
    to = tmp_path / "textfiles" / "torchchaos.prom"
    to.parent.mkdir()
    to.write_text("earlier\n")
    inode = to.stat().st_ino
    done = chaos("metrics", str(folder), "--to", str(to))
    assert (done.returncode, done.stdout) == (0, "")
    assert to.read_text() == chaos("metrics", str(folder)).stdout
    assert to.stat().st_ino != inode
    assert list(to.parent.iterdir()) == [to]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["metrics", "absent"], "absent is not the folder of a run"),
        (["metrics"], "Missing argument 'RUN...'"),
        (["metrics", "a-folder", "--to", "/proc/torchchaos.prom"], "--to /proc/torchchaos.prom cannot be written"),
        (["metrics", "broken-gate"], "broken-gate/gate.json cannot be read"),
        (["run", "steady", *TOY, "--metrics", "9464"], "'9464' names no port; type :9464"),
        (["run", "steady", *TOY, "--metrics", ":USED"], "cannot be served: Address already in use"),
    ],
)
def test_bad_input_is_one_line_and_64(chaos, tmp_path: Path, args: list[str], message: str) -> None:
    recorded.lay_out(recorded.load("steady"), tmp_path / "a-folder")
    (tmp_path / "broken-gate").mkdir()
    (tmp_path / "broken-gate" / RECORD).write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as used:
        done = chaos(*(arg.replace("USED", str(used.getsockname()[1])) for arg in args))
    assert done.returncode == 64, done
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()
