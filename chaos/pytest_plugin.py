"""The pytest plugin: an experiment as an ordinary test of a trainer's own repository.

    @pytest.mark.chaos_experiment("replica-lost", set={"workload.settings": {"heartbeat_timeout_ms": 500}})
    def test_a_lost_replica_is_back_soon(chaos_experiment):
        assert chaos_experiment.measures["replicas_rejoin.recovery_s"] < 30

The experiment runs before the test's body, as `chaos run` in a process of its own, and its folder stays. A job that
broke fails the test; a run that proved nothing is the test's error, not its failure. Under pytest-xdist experiments
wait for one another, because two jobs on one machine would disturb each other's times.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.check import VERDICT
from chaos.model.verdict import Outcome, Verdict
from chaos.platforms.local.kernel import die_with_parent
from chaos.report import page
from chaos.report.explain import explain

MARKER = "chaos_experiment"
END_S_MAX = 120.0
"""How long a run that is given up may take to give everything back."""

_TOLD = re.compile("^  report  (.*)$", re.MULTILINE)
_RUN = pytest.StashKey["Run"]()


@dataclass(frozen=True)
class Run:
    """A run that is over. `measures` are the numbers of its monitors, named `monitor.measure`."""

    folder: Path
    verdict: Verdict

    @property
    def outcome(self) -> Outcome:
        """As `chaos run` counts it: a known bug that shows as expected is a PASS."""
        return next(one for one in Outcome if one.exit_code == self.verdict.exit_code)

    @property
    def report(self) -> Path:
        return self.folder / page.NAME

    @property
    def measures(self) -> dict[str, float | int | str | None]:
        told = self.verdict.findings
        return {f"{finding.monitor}.{name}": value for finding in told for name, value in finding.measures.items()}

    def said(self) -> str:
        """What happened, and where to read more."""
        return f"{explain(self.folder).rstrip()}\n\nreport: {self.report}"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("torchchaos")
    group.addoption("--chaos-runs", type=Path, default=Path("runs"), help="Folder that gets a folder for each run.")
    group.addoption("--chaos-isolation", help="As `chaos run --isolation`.")


def pytest_configure(config: pytest.Config) -> None:
    said = "chaos_experiment(name, *, set={}, seed=None): run this experiment, a file or a shipped one, before the test"
    config.addinivalue_line("markers", said)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The marker is enough: the fixture comes with it."""
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker(MARKER) and MARKER not in item.fixturenames:
            item.fixturenames.insert(0, MARKER)


@pytest.fixture
def chaos_experiment(request: pytest.FixtureRequest) -> Run:
    """The run of the experiment that the test's marker names."""
    marker = request.node.get_closest_marker(MARKER)
    if marker is None or len(marker.args) != 1 or marker.kwargs.keys() - {"set", "seed"}:
        example = f'@pytest.mark.{MARKER}("replica-lost", set={{"workload.steps": 200}}, seed=1)'
        raise pytest.UsageError(f"{request.node.nodeid} names no experiment; type for example {example}")
    run = _run(marker.args[0], marker.kwargs.get("set", {}), marker.kwargs.get("seed"), request.config)
    if run.outcome is Outcome.UNKNOWN:
        raise ExperimentProvedNothing(run.said())
    request.node.stash[_RUN] = run
    return run


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A job that broke is a failure of the test, so it is told when the test is called, not when it is set up."""
    run = pyfuncitem.stash.get(_RUN, None)
    if run is not None and run.outcome is Outcome.FAIL:
        pytest.fail(run.said(), pytrace=False)
    return (yield)


class ExperimentProvedNothing(Exception):
    """The run says neither that the job keeps its promises nor that it breaks them."""


class ExperimentRefused(Exception):
    """There was no run: bad input, or a machine that cannot do it."""


def _run(experiment: str, overrides: dict[str, Any], seed: int | None, config: pytest.Config) -> Run:
    runs: Path = config.getoption("--chaos-runs")
    runs = config.invocation_params.dir / runs
    command = [sys.executable, "-m", "chaos", "run", experiment, "--runs", str(runs)]
    command += [] if seed is None else ["--seed", str(seed)]
    for key, value in overrides.items():
        command += ["--set", f"{key}={msgspec.json.encode(value).decode()}"]
    if isolation := config.getoption("--chaos-isolation"):
        command += ["--isolation", isolation]
    with _alone(runs):
        status, printed = _ended(command)
    report = _TOLD.search(printed)
    if report is None:
        raise ExperimentRefused(f"`{' '.join(command)}` ended with {status} and without a verdict:\n{printed}")
    folder = Path(report[1]).parent
    return Run(folder, msgspec.json.decode((folder / VERDICT).read_bytes(), type=Verdict))


def _ended(command: list[str]) -> tuple[int, str]:
    """The status and the words of a run. Whoever interrupts the tests ends it in order; whoever kills them, too."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "COLUMNS": "200"}
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=die_with_parent,
    ) as run:
        try:
            printed, _ = run.communicate()
        except BaseException:
            run.send_signal(signal.SIGTERM)
            run.wait(END_S_MAX)
            raise
        return run.returncode, printed


@contextmanager
def _alone(runs: Path) -> Iterator[None]:
    """One experiment at once, of all workers that share the folder. The kernel ends the lock with its process."""
    runs.mkdir(parents=True, exist_ok=True)
    with (runs / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
