"""A whole call of a gate without its program: what it leaves in its folder, and what it says when it cannot."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from suites import BROKEN, MACHINE, RECOVERY, STACK, Runs, recovered, suite

from chaos.gate.call import Call, Options
from chaos.gate.suite import Suite
from chaos.model.gate import RECORD, Gate
from chaos.model.verdict import Outcome


def called(folder: Path, execute: Callable[..., Any], asked: Suite | None = None, **options: Any) -> tuple[Gate, str]:
    """The gate, and what was printed."""
    console = Console(file=StringIO(), width=200)
    call = Call(asked or suite(folder, runs=2), Options(folder / "runs", junit=folder / "junit.xml", **options))
    gate = call.make(execute, STACK, MACHINE, console, lambda gate: None)
    assert isinstance(console.file, StringIO)
    return gate, console.file.getvalue()


def test_the_folder_gets_a_page_that_leads_to_the_runs_and_what_ci_reads(tmp_path):
    _, said = called(tmp_path, Runs(recovered(4), recovered(4)))
    (folder,) = (tmp_path / "runs").iterdir()
    assert {file.name for file in folder.iterdir()} == {RECORD, "gate.html", "gate.md", "junit.xml"}
    assert f"report  {folder / 'gate.html'}" in said
    page = (folder / "gate.html").read_text()
    assert 'href="run-1-1/report.html"' in page and 'href="/' not in page
    assert (folder / "junit.xml").read_bytes() == (tmp_path / "junit.xml").read_bytes()


def test_what_cannot_be_written_changes_no_outcome_and_is_told_after_it(tmp_path):
    good = Runs(recovered(4), recovered(4))

    def execute(experiment, folder, limit_s):
        (folder / "gate.html").mkdir(exist_ok=True)
        return good(experiment, folder, limit_s)

    gate, said = called(tmp_path, execute)
    assert gate.outcome is Outcome.PASS
    assert said.index("PASS  a-gate") < said.index("gate.html cannot be written: Is a directory; the outcome stands")
    assert (tmp_path / "junit.xml").is_file()


def test_a_record_that_cannot_be_kept_ends_the_gate_undecided(tmp_path):
    """Nobody could go on with it, so no more runs are made."""
    runs = Runs(recovered(4), recovered(4))

    def execute(experiment, folder, limit_s):
        (folder / RECORD).unlink()
        (folder / RECORD).mkdir()
        return runs(experiment, folder, limit_s)

    gate, said = called(tmp_path, execute)
    assert (gate.outcome, gate.complete, runs.seeds) == (Outcome.UNKNOWN, False, [1])
    assert f"UNKNOWN  a-gate: {next((tmp_path / 'runs').iterdir()) / RECORD} cannot be written: Is a directory" in said


def test_a_baseline_is_recorded_from_more_runs_and_says_what_comparisons_with_it_need(tmp_path):
    compared = {"measure": RECOVERY, "percentile": 50, "at_most": 99, "worse_by_max": 1.2}
    entry = {"experiment": "replica-lost", "runs": 5, "baseline_runs": 8, "objectives": [compared]}
    asked = suite(tmp_path, experiments=[entry], budget_s=50)
    file = tmp_path / "baseline.json"
    spread = Runs(*map(recovered, (4, 9, 5, 7, 4, 8, 5, 9)))
    gate, said = called(tmp_path, spread, asked, baseline=file, update_baseline=True)
    assert (gate.outcome, len(spread.seeds), gate.experiments[0].runs_wanted) == (Outcome.PASS, 8, 8)
    assert "worse_by_max: 1.80; the suite has 1.2" in said
    assert asked.recording().spec.budget_s == 80
    gate, said = called(tmp_path, Runs(*map(recovered, (4, 4, 5, 4, 5))), asked, baseline=file)
    assert (len(gate.experiments[0].runs), gate.baseline) == (5, str(file))
    assert "note: the baseline may leave it open, replicas_rejoin.recovery_s of replica-lost: " in said


def test_a_gate_that_does_not_pass_becomes_no_baseline(tmp_path):
    file = tmp_path / "baseline.json"
    gate, said = called(tmp_path, Runs(BROKEN), baseline=file, update_baseline=True)
    assert gate.outcome is Outcome.FAIL
    assert f"the baseline {file} stays as it is: only a gate that passes can become one" in said
    assert not file.exists()
