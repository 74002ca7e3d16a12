"""The faults that come with torchchaos, as the planner sees them."""

from __future__ import annotations

import signal

from chaos.api import Aim, Delete, Process, Restart, Signal
from chaos.model.topology import Topology
from faults.pod_kill import PodKill
from faults.process_kill import ProcessKill

TOPOLOGY = Topology((), Restart.ALWAYS)


def test_pod_kill() -> None:
    assert PodKill.name == "pod.kill"
    assert tuple(PodKill().injections(Aim(("lighthouse",), TOPOLOGY))) == (Delete("lighthouse"),)
    assert {"replica", "lighthouse", "controller"} == PodKill.roles


def test_process_kill() -> None:
    assert ProcessKill.name == "process.kill"
    assert tuple(ProcessKill().injections(Aim(("replica-1",), TOPOLOGY))) == (
        Signal("replica-1", Process.TRAINER, signal.SIGKILL),
    )
    assert {"replica"} == ProcessKill.roles
