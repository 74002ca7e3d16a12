"""A cluster whose clocks are wrong by the runner's: that is told, and taken out of the times of events."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from chaos.platforms.kubernetes.options import laid_over
from chaos.platforms.kubernetes.preflight import AGENT, SYSTEM
from tests.kubernetes.conftest import CHECKOUT, KUBE, TOY, Cluster

BEHIND_S = 30
PRELOADED = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, clock, at);
    if (clock == CLOCK_REALTIME) at->tv_sec -= BEHIND_S;
    return failed;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return at ? *at = now.tv_sec : now.tv_sec;
}
"""
"""Tells a process another time of day, and leaves its monotonic clock alone."""


@pytest.fixture
def behind(cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Agents and members live in the past."""
    if KUBE == "" or shutil.which("cc") is None:
        pytest.skip("needs TORCHCHAOS_KUBE, where pods see this machine's files, and a C compiler")
    library = CHECKOUT / "runs" / "behind.so"
    library.parent.mkdir(exist_ok=True)
    compiled = ["cc", "-shared", "-fPIC", f"-DBEHIND_S={BEHIND_S}", "-x", "c", "-", "-o", library]
    subprocess.run(compiled, input=PRELOADED, text=True, check=True)
    more = [{"name": "LD_PRELOAD", "value": str(library)}]
    options = yaml.safe_load(cluster.file.read_text())
    programs = {name: laid_over(options[name], {"container": {"env": more}}) for name in ("job", "agent")}
    late = cluster.saying(tmp_path, **programs)
    done = late.chaos("install", "kubernetes", "--platform-file", late.file)
    assert done.returncode == 0, done.stderr
    heard(late)
    yield late
    again = cluster.chaos("install", "kubernetes", "--platform-file", cluster.file)
    library.unlink()
    assert again.returncode == 0, again.stderr


def heard(cluster: Cluster) -> None:
    """Wait for the agents: to their clocks the certificate of a cluster that was just made is not valid yet."""
    beats = ("leases", f"--namespace={SYSTEM}", f"--selector={AGENT}", "--output=name")
    assert cluster.kubectl("delete", *beats).returncode == 0
    nodes = len(cluster.kubectl("get", "nodes", "--output=name").stdout.split())
    deadline_s = time.monotonic() + 3 * BEHIND_S
    while len(cluster.kubectl("get", *beats).stdout.split()) < nodes:
        assert time.monotonic() < deadline_s, "agents that are behind were not heard"
        time.sleep(0.2)


def test_clocks_that_are_behind_are_told_and_the_run_is_judged_as_ever(behind, tmp_path, judged):
    done = behind.run("replica-lost", tmp_path / "runs", *TOY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"is {BEHIND_S}.0 s behind this one; times of its members are set right by that" in done.stderr
    assert judged(tmp_path / "runs")["one_clock"] == "PASS"
