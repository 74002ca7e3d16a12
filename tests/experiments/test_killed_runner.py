"""`kill -9` of `chaos run` at any moment leaves nothing: no process, namespace, link, cgroup or temporary file."""

from __future__ import annotations

import random
import signal
import subprocess

import pytest

from tests.conftest import CHAOS
from tests.experiments import machine

TOY = ("--set", "workload.program=toyjob", "--set", "workload.recipe=toy", "--set", "workload.steps=4000")


@pytest.mark.parametrize("moment", ["start-up", "deploy", "baseline", "disturb", "quiesce", "drain"])
def test_nothing_is_left_after_sigkill(tmp_path, chaos_env, moment):
    before = machine.state(tmp_path)
    marker = f"torchchaos-test-{random.getrandbits(64):x}"
    with subprocess.Popen(
        [CHAOS, "run", "replica-lost", *TOY],
        cwd=tmp_path,
        env={**chaos_env, "MARKER": marker},
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        waited_for = "run started" if moment == "start-up" else f"phase: {moment}"
        assert any(waited_for in line for line in running.stdout), f"{moment} never came"
        running.send_signal(signal.SIGKILL)
        running.wait()
    assert not machine.left(tmp_path, before, marker)
