"""A cluster whose clocks are wrong by the runner's: that is told, and taken out of the times of events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from chaos.platforms.kubernetes.options import laid_over
from tests.kubernetes.conftest import TOY, Cluster

BEHIND_S = 30
LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
"""Tells its process another time of day, and leaves its monotonic clock alone."""


@pytest.fixture
def behind(cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Agents and members live in the past."""
    if LIBRARY is None:
        pytest.skip("libfaketime is not installed")
    told = {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME": f"-{BEHIND_S}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
    }
    more = [{"name": name, "value": value} for name, value in told.items()]
    options = yaml.safe_load(cluster.file.read_text())
    programs = {name: laid_over(options[name], {"container": {"env": more}}) for name in ("job", "agent")}
    late = cluster.saying(tmp_path, **programs)
    done = late.chaos("install", "kubernetes", "--platform-file", late.file)
    assert done.returncode == 0, done.stderr
    yield late
    again = cluster.chaos("install", "kubernetes", "--platform-file", cluster.file)
    assert again.returncode == 0, again.stderr


def test_clocks_that_are_behind_are_told_and_the_run_is_judged_as_ever(behind, tmp_path, judged):
    done = behind.run("replica-lost", tmp_path / "runs", *TOY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"is {BEHIND_S}.0 s behind this one; times of its members are set right by that" in done.stderr
    assert judged(tmp_path / "runs")["one_clock"] == "PASS"
