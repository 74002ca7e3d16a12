"""Two runs side by side: what differed before and after, and by how much."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import msgspec
import pytest

from chaos.report import compare, record
from chaos.report.compare import Comparison, Pair, _change
from tests.golden import recorded
from tests.golden.recorded import lay_out


@pytest.fixture
def lost_and_killed(tmp_path: Path) -> Comparison:
    folders = (lay_out(recorded.load(name), tmp_path / name) for name in ("replica-lost", "process-kill"))
    return Comparison(*map(record.read, folders))


def test_settings_that_differ_are_named_and_others_are_not(lost_and_killed: Comparison) -> None:
    settings = {pair.name: (pair.a, pair.b) for pair in lost_and_killed.settings()}
    assert settings["name"] == ("replica-lost", "process-kill")
    assert settings["faults.0.fault"] == ("pod.kill", "process.kill")
    assert "None" not in {value for pair in settings.values() for value in pair}
    assert "seed" not in settings and "platform" not in settings


def test_a_run_compared_with_itself_differs_in_nothing(lost_and_killed: Comparison) -> None:
    same = Comparison(lost_and_killed.a, lost_and_killed.a)
    assert same.settings() == []
    assert not any(pair.differs or pair.change for pair in same.whole())
    for judged in same.judged():
        assert not judged.differs
        assert not any(pair.differs or pair.change for pair in judged.measures())


def test_every_measure_of_both_is_there_and_recovery_comes_first(lost_and_killed: Comparison) -> None:
    judged = lost_and_killed.judged()
    assert [one.monitor for one in judged[:3]] == ["replicas_rejoin", "survivors_continue", "goodput"]
    for side, told in (("a", lost_and_killed.a), ("b", lost_and_killed.b)):
        found = {one.monitor: {pair.name: getattr(pair, side) for pair in one.measures()} for one in judged}
        for finding in told.verdict.findings:
            for name, value in finding.measures.items():
                if isinstance(value, float):
                    assert float(found[finding.monitor][name]) == pytest.approx(value, abs=5e-4)


def test_a_monitor_that_judged_one_alone(lost_and_killed: Comparison) -> None:
    verdict = lost_and_killed.b.verdict
    fewer = [finding for finding in verdict.findings if finding.monitor != "goodput"]
    without = replace(lost_and_killed.b, verdict=msgspec.structs.replace(verdict, findings=tuple(fewer)))
    (goodput,) = (one for one in Comparison(lost_and_killed.a, without).judged() if one.monitor == "goodput")
    assert goodput.b is None and goodput.differs
    assert {pair.b for pair in goodput.measures()} == {"-"}
    assert "not judged" in compare.render(Comparison(lost_and_killed.a, without))


@pytest.mark.parametrize(
    ("a", "b", "change"),
    [(2.0, 3.0, "+50%"), (4, 3, "-25%"), (0, 2, "+2"), (1.0, 1.0, ""), (None, 1.0, ""), ("x", "y", ""), (1.0, inf, "")],
)
def test_change(a: compare.Value, b: compare.Value, change: str) -> None:
    assert _change(a, b) == change
    assert Pair("", "1", "2").differs


def test_the_command_prints_and_writes_a_page(chaos, tmp_path: Path) -> None:
    for name in ("replica-lost", "process-kill"):
        lay_out(recorded.load(name), tmp_path / name)
    done = chaos("compare", "replica-lost", "process-kill", "--html", "two.html")
    assert done.returncode == 0, done.stderr
    assert "PASS    replica-lost" in done.stdout and "recovery_s" in done.stdout
    assert "<script" not in (tmp_path / "two.html").read_text()
    refused = chaos("compare", "replica-lost", "process-kill", "--html", "absent/two.html")
    assert refused.returncode == 64 and "--html absent/two.html cannot be written" in refused.stderr
    assert chaos("compare", "replica-lost", "absent").returncode == 64


def test_report_writes_both_files_again(chaos, tmp_path: Path) -> None:
    run = lay_out(recorded.load("steady"), tmp_path / "steady")
    done = chaos("report", "steady")
    assert done.returncode == 0 and "steady/report.html" in done.stdout
    assert (run / "report.md").read_text().startswith("# PASS: steady")
    assert "steady</h1>" in (run / "report.html").read_text()
    assert chaos("report", "absent").returncode == 64
