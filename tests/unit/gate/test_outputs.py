"""What a gate tells, read by those who have to: a JUnit parser and a renderer of Markdown."""

from __future__ import annotations

from io import StringIO

import junitparser
import pytest
from markdown_it import MarkdownIt
from rich.console import Console
from suites import BROKEN, INVALID, RECOVERY, Runs, gated, recovered, suite, verdict

from chaos.gate import outputs
from chaos.model.gate import Gate
from chaos.model.verdict import Outcome

MEDIAN = {"measure": RECOVERY, "percentile": 50, "at_most": 10}
HOSTILE = verdict(Outcome.FAIL, "a | b\n<c> & \x00\x1b[31m\ufffe]]> ```")


def cases(gate: Gate, tmp_path) -> dict[str, junitparser.TestCase]:
    (tmp_path / "junit.xml").write_bytes(outputs.junit(gate, tmp_path))
    parsed = junitparser.JUnitXml.fromfile(str(tmp_path / "junit.xml"))
    (only,) = parsed
    counts = (parsed.tests, parsed.failures, parsed.errors, parsed.skipped)
    kinds = [type(one.result[0]) if one.result else None for one in only]
    told = [kinds.count(kind) for kind in (junitparser.Failure, junitparser.Error, junitparser.Skipped)]
    assert counts == (len(kinds), *told)
    return {case.name: case for case in only}


def result(case: junitparser.TestCase) -> str:
    return type(case.result[0]).__name__ if case.result else "passed"


def test_a_gate_that_passes_has_passed_cases_that_name_their_runs(tmp_path):
    gate = gated(suite(tmp_path, MEDIAN), Runs(*[recovered(4)] * 5), tmp_path)
    told = cases(gate, tmp_path)
    assert {result(case) for case in told.values()} == {"passed"}
    assert "run-5-5" in told["all runs pass"].system_out


def test_a_broken_job_is_a_failure_and_what_was_left_open_is_skipped(tmp_path):
    told = cases(gated(suite(tmp_path, MEDIAN), Runs(BROKEN), tmp_path), tmp_path)
    assert result(told["all runs pass"]) == "Failure"
    assert "replica-1 did not come back" in told["all runs pass"].result[0].message
    assert str(tmp_path / "run-1-1") in told["all runs pass"].result[0].text
    assert result(told["median of replicas_rejoin.recovery_s at most 10"]) == "Skipped"


@pytest.mark.parametrize("runs", [(INVALID, INVALID), (recovered(11), *[recovered(4)] * 4)])
def test_experiments_that_do_not_tell_are_errors(tmp_path, runs):
    told = cases(gated(suite(tmp_path, MEDIAN), Runs(*runs), tmp_path), tmp_path)
    assert result(told["median of replicas_rejoin.recovery_s at most 10"]) == "Error"


def rows(text: str) -> list[int]:
    """The number of cells of each row of each table."""
    tokens = MarkdownIt().enable("table").parse(text)
    cells = [token.type for token in tokens if token.type in ("tr_open", "td_open", "th_open")]
    return [len(row.split()) for row in " ".join(cells).split("tr_open")[1:]]


def test_markdown_has_a_row_for_each_objective_and_run(tmp_path):
    gate = gated(suite(tmp_path, MEDIAN), Runs(*[recovered(4)] * 5), tmp_path)
    assert rows(outputs.markdown(gate, tmp_path)) == [4, 4, 4, 4, 5, 5, 5, 5, 5, 5]


def test_hostile_words_break_neither(tmp_path):
    gate = gated(suite(tmp_path, MEDIAN), Runs(HOSTILE), tmp_path)
    assert rows(outputs.markdown(gate, tmp_path)) == [4, 4, 4, 4, 5, 5]
    assert "a | b" in cases(gate, tmp_path)["all runs pass"].result[0].message


def test_the_terminal_says_the_outcome_first_and_every_objective(tmp_path):
    console = Console(file=StringIO(), width=60)
    outputs.show(gated(suite(tmp_path, MEDIAN), Runs(BROKEN), tmp_path), console)
    assert isinstance(console.file, StringIO)
    first, *rest = console.file.getvalue().splitlines()
    assert first.startswith("FAIL  a-gate: replica-lost: all runs pass: ")
    assert sum("replica-lost" in line for line in rest) == 3
