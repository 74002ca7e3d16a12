"""A pod that is gone from the API server may live on: what that means is proven on its node, and told."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from chaos import journal
from chaos.model.events import InjectionInForce, MemberStarted, Step
from chaos.model.injections import Evict
from tests.conftest import CHAOS
from tests.kubernetes.conftest import KUBE, Cluster
from tests.kubernetes.dead_man import parent, processes_with

EXPERIMENT = """
name: lives
why: A pod is deleted by force while its container takes its time to end.
workload: {program: toyjob, recipe: toy, replicas: 3, min_replicas: 1, steps: 100000}
topology: {nodes: 2}
baseline: {steps: 5}
quiesce: {common_steps: 5}
monitors: {progress: {stall_s_max: 60}}
faults:
  - {fault: cpu.starve, target: {role: replica, member: replica-0}, at: {step: 10}, args: {cores: 2}, for_s: 15}
  - {fault: pod.evict, target: {role: replica, member: replica-2}, at: {seconds: 8}, args: {grace_s: 2}}
"""


def main_process(member: str) -> int:
    found = processes_with("toyjob", member)
    (pid,) = (pid for pid in found if parent(pid) not in found)
    return pid


@pytest.mark.skipif(not KUBE, reason="TORCHCHAOS_KUBE is not set: the nodes are not on this machine")
def test_a_container_that_outlives_its_pod_is_in_force_at_its_end_only_and_two_lives_at_once_are_told(
    cluster: Cluster, tmp_path: Path
):
    (tmp_path / "lives.yaml").write_text(EXPERIMENT)
    where = ("--platform", "kubernetes", "--platform-file", cluster.file, "--runs", "runs")
    command = [CHAOS, "run", "lives.yaml", *where]
    with subprocess.Popen(command, cwd=tmp_path, env=cluster.env, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert any("in force" in line for line in run.stdout)
        for member in ("replica-1", "replica-2"):
            os.kill(main_process(member), signal.SIGSTOP)  # It hears no SIGTERM; its trainer trains on.
        pod = cluster.kubectl("get", "pods", "-l", "torchchaos.dev/member=replica-1", "-o", "name").stdout.strip()
        assert cluster.kubectl("delete", pod, "--force", "--grace-period=0").returncode == 0
        said = run.stdout.read()
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert run.returncode == 0, said
    events = list(journal.Reading(run_dir / journal.NAME).events())
    (evicted,) = (e for e in events if isinstance(e, InjectionInForce) and isinstance(e.injection, Evict))
    last = max(e.t_s for e in events if isinstance(e, Step) and (e.member, e.incarnation) == ("replica-2", 1))
    assert last < evicted.t_s, "a container that still runs is not called gone"
    (second,) = (e for e in events if isinstance(e, MemberStarted) and (e.member, e.incarnation) == ("replica-1", 2))
    both = [e for e in events if isinstance(e, Step) and e.member == "replica-1" and e.incarnation == 1]
    assert both[-1].t_s > second.t_s, "the old life is heard beside the new one"
    told = subprocess.run([CHAOS, "explain", run_dir], env=cluster.env, capture_output=True, text=True)
    assert "replica-1 lived twice at once: its life 1 still tried" in told.stdout, told.stdout
