"""`chaos abort` ends what goes on here, at once and in order."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos import journal
from chaos.model.events import InjectionReverted, RevertFailed
from chaos.model.verdict import Outcome
from chaos.platforms.local import abort, owner
from tests.conftest import CHAOS

LONG = """
name: long
why: A fault that would last for long.
workload: {program: toyjob, recipe: toy, replicas: 3, min_replicas: 1, steps: 100000}
baseline: {steps: 5}
monitors: {progress: {stall_s_max: 60}}
faults:
  - {fault: process.freeze, target: {role: replica, member: replica-1}, at: {step: 10}, for_s: 300}
"""
WAIT_S = 60.0


@contextmanager
def running(folder: Path, env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], abort.Living]]:
    """A run whose fault is in force; as it is found."""
    (folder / "long.yaml").write_text(LONG)
    command = [CHAOS, "run", "long.yaml"]
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        try:
            assert any("in force" in line for line in run.stdout)
            (found,) = [living for living in abort.find() if living.runner == run.pid]
            yield run, found
        finally:
            run.kill()


def gone(pid: int) -> bool:
    """Nobody may have collected it yet."""
    found = owner.stat(pid)
    return found is None or found[0] in "ZX"


def test_a_living_run_is_found_and_ends_in_order_with_its_fault_undone(tmp_path, chaos_env):
    with running(tmp_path, chaos_env) as (run, found):
        (folder,) = (tmp_path / "runs").iterdir()
        assert found.name == folder.name
        assert abort.end(found) == "ended in order"
        assert gone(found.keeper)
        assert run.stdout is not None
        said = run.stdout.read()
        assert run.wait(WAIT_S) == Outcome.UNKNOWN.exit_code, said
    assert "the run was broken off: interrupted" in said
    events = list(journal.Reading(folder / journal.NAME).events())
    assert any(isinstance(event, InjectionReverted) for event in events), said
    assert not any(isinstance(event, RevertFailed) for event in events), said
    assert abort.end(found) == "ended by itself", "what is gone is not ended again"


def test_a_runner_that_does_not_end_is_killed_and_nothing_of_its_run_stays(tmp_path, chaos_env, monkeypatch):
    monkeypatch.setattr(abort, "END_S", 0.5)
    with running(tmp_path, chaos_env) as (run, found):
        run.send_signal(signal.SIGSTOP)
        assert abort.end(found) == "killed, since it did not end"
        assert gone(found.keeper)
        assert run.wait(WAIT_S) == -signal.SIGKILL


@pytest.mark.parametrize("platform", ["elsewhere", "kubernetes"])
def test_where_to_look_must_be_said_rightly(chaos, platform):
    assert chaos("abort", "--platform", platform).returncode == 64
