"""The faults that come with torchchaos, as the planner sees them."""

from __future__ import annotations

import signal

from chaos.api import Delete, Process, Signal
from faults.pod_kill import PodKill
from faults.process_kill import ProcessKill


def test_pod_kill() -> None:
    assert PodKill.name == "pod.kill"
    assert tuple(PodKill().injections("lighthouse")) == (Delete("lighthouse"),)
    assert {"replica", "lighthouse", "controller"} == PodKill.roles


def test_process_kill() -> None:
    assert ProcessKill.name == "process.kill"
    assert tuple(ProcessKill().injections("replica-1")) == (Signal("replica-1", Process.TRAINER, signal.SIGKILL),)
    assert {"replica"} == ProcessKill.roles
