"""Whoever dies, every fault ends: the runner, the agent, and what a killed runner leaves is cleared up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.agent.leases import REVERT_S
from chaos.platforms.kubernetes.objects import LEASE_TTL_S
from tests.conftest import CHAOS
from tests.kubernetes import dead_man
from tests.kubernetes.conftest import KUBE, Cluster

EXPERIMENT = """
name: dead-man
why: A fault that would last for long, and somebody dies meanwhile.
workload: {program: toyjob, recipe: toy, replicas: 3, min_replicas: 1, steps: 100000}
topology: {nodes: 2}
baseline: {steps: 5}
monitors: {progress: {stall_s_max: 60}}
faults:
  - {fault: nic.down, target: {role: replica, member: replica-1}, at: {step: 10}, args: {interface: data}, for_s: 60}
"""
WAIT_S = 60.0


@contextmanager
def running(cluster: Cluster, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A run whose fault is in force."""
    (folder / "dead-man.yaml").write_text(EXPERIMENT)
    where = ("--platform", "kubernetes", "--platform-file", cluster.file, "--runs", folder / "runs")
    command = [CHAOS, "run", folder / "dead-man.yaml", *where]
    with subprocess.Popen(command, env=cluster.env, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        try:
            assert any("in force" in line for line in run.stdout)
            yield run
        finally:
            run.kill()


def carrier(cluster: Cluster) -> str:
    """Of the target's data interface, seen from inside."""
    target = f"torchchaos.dev/member=replica-1,torchchaos.dev/run={run_of(cluster)}"
    (pod,) = cluster.kubectl("get", "pods", "-l", target, "-o", "name").stdout.split()
    return cluster.kubectl("exec", pod, "--", "cat", "/sys/class/net/net1/carrier").stdout.strip()


def run_of(cluster: Cluster) -> str:
    (lease,) = cluster.kubectl("get", "leases", "-l", "torchchaos.dev/run", "-o", "name").stdout.split()
    return lease.rpartition("/")[2]


def until(met: Callable[[], bool], what: str) -> None:
    began_s = time.monotonic()
    while not met():
        assert time.monotonic() - began_s < WAIT_S, f"not within {WAIT_S} s: {what}"


def test_a_killed_runner_leaves_no_fault_and_the_rest_is_cleared_up(cluster, tmp_path):
    with running(cluster, tmp_path) as run:
        assert carrier(cluster) == "0"
        run.send_signal(signal.SIGKILL)
        run.wait()
    until(lambda: carrier(cluster) == "1", "the link is up again")
    clean = ("clean", "--platform", "kubernetes", "--platform-file", cluster.file)
    assert cluster.chaos(*clean).stdout == "nothing was left behind\n"
    long_ago = '{"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}'
    name = run_of(cluster)
    assert cluster.kubectl("patch", "lease", name, "--type=merge", "-p", long_ago).returncode == 0
    done = cluster.chaos(*clean)
    assert done.stdout == f"removed run {name}\n1 dead runs removed\n", done.stderr
    assert cluster.left() == ""


def test_a_killed_agent_s_successor_gives_everything_back_and_says_so(cluster, tmp_path, judged):
    with running(cluster, tmp_path) as run:
        for pid in agents_of_replica(cluster):
            os.kill(pid, signal.SIGKILL)
        assert run.stdout is not None
        said = run.stdout.read()
        assert run.wait(WAIT_S) == 2, said
    outcomes = judged(tmp_path / "runs")
    assert (outcomes["fault_in_force"], outcomes["fault_reverted"]) == ("PASS", "UNKNOWN"), said
    assert "the agent of the node was started again" in said
    assert outcomes["progress"] == "PASS", said
    assert cluster.left() == ""


def test_while_the_api_server_hangs_the_fault_ends_by_itself_and_the_run_goes_on(cluster, tmp_path, judged):
    with running(cluster, tmp_path) as run:
        (trainer, *_) = on_this_machine("toyjob", "replica-1") or [0]
        (server, *_) = on_this_machine("--etcd-servers=http://127.0.0.1:2379") or [0]
        if not (trainer and server):
            pytest.skip("the API server is not on this machine: nobody can stop it")
        link = Path(f"/proc/{trainer}/root/sys/class/net/net1/carrier")
        assert link.read_text() == "0\n"
        os.kill(server, signal.SIGSTOP)
        try:
            until(lambda: link.read_text() == "1\n", "the link is up again")
        finally:
            os.kill(server, signal.SIGCONT)
        assert run.stdout is not None
        said = run.stdout.read()
        assert run.wait(WAIT_S) == 2, said
    outcomes = judged(tmp_path / "runs")
    assert (outcomes["fault_in_force"], outcomes["fault_reverted"]) == ("PASS", "UNKNOWN"), said
    assert "which holds for 3 s, was seen renewed after" in said
    assert outcomes["progress"] == "PASS", said
    assert cluster.left() == ""


def test_a_runner_that_hangs_for_longer_than_its_lease_is_told_so(cluster, tmp_path, judged):
    with running(cluster, tmp_path) as run:
        run.send_signal(signal.SIGSTOP)
        try:
            until(lambda: carrier(cluster) == "1", "the link is up again")
        finally:
            run.send_signal(signal.SIGCONT)
        assert run.stdout is not None
        said = run.stdout.read()
        assert run.wait(WAIT_S) == 2, said
    assert judged(tmp_path / "runs")["fault_reverted"] == "UNKNOWN", said
    late = re.search(r"was seen renewed after (\S+) s, and made so after (\S+) s", said)
    assert late is not None, said
    assert all(float(gap_s) > LEASE_TTL_S - REVERT_S for gap_s in late.groups()), said
    assert cluster.left() == ""


@pytest.mark.skipif(not KUBE, reason="TORCHCHAOS_KUBE is not set: the nodes are not on this machine")
def test_whoever_dies_everything_is_as_before_and_no_object_is_stuck(cluster, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", cluster.env["KUBECONFIG"])
    with dead_man.targets(cluster, dead_man.NODE) as (one, two):
        held = list(dead_man.kinds(one, two, dead_man.NODE))
        looks = {name: look for name, _, look in held}
        for victim in ("both", "NIC of the node"):
            job = dead_man.Job(cluster.namespace, f"dm-{len(victim)}", [order for _, order, _ in held])
            done = dead_man.trial(victim, job, looks, wait_s=0.0)
            assert done.left == [], victim


def agents_of_replica(cluster: Cluster) -> list[int]:
    """Processes of the agent on the node of replica-1, where this machine is that node."""
    where = ("-l", "torchchaos.dev/member=replica-1", "-o", "jsonpath={.items[0].spec.nodeName}")
    found = on_this_machine("chaos.platforms.kubernetes.agent", cluster.kubectl("get", "pods", *where).stdout)
    if not found:
        pytest.skip("the nodes are not on this machine: nobody can be killed there")
    return found


def on_this_machine(*words: str) -> list[int]:
    """Processes that have all these among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if all(word.encode() in arguments for word in words):
                found.append(int(entry.name))
    return found


def test_a_deleted_injection_ends_at_once(cluster, tmp_path):
    """`kubectl delete injections --all` always ends everything."""
    with running(cluster, tmp_path) as run:
        assert carrier(cluster) == "0"
        assert cluster.kubectl("delete", "injections", "--all", "--wait=true").returncode == 0
        assert carrier(cluster) == "1"
        run.send_signal(signal.SIGINT)
        assert run.wait(WAIT_S) == 2
    assert cluster.left() == ""


def test_an_aborted_run_ends_with_its_fault_and_leaves_nothing(cluster, tmp_path):
    with running(cluster, tmp_path) as run:
        name = run_of(cluster)
        done = cluster.chaos("abort", "--platform", "kubernetes", "--platform-file", cluster.file)
        assert done.stdout == f"run {name} ended\n", done.stderr
        assert cluster.left() == ""
        assert run.stdout is not None
        said = run.stdout.read()
        assert run.wait(WAIT_S) == 2, said
    assert "the run was broken off: somebody typed: chaos abort" in said
    assert (
        cluster.chaos("abort", "--platform", "kubernetes", "--platform-file", cluster.file).stdout == "no run goes on\n"
    )
