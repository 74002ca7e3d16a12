"""`kill -9` of `chaos run` at any moment leaves nothing: no process, namespace, link, cgroup or temporary file."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.conftest import CHAOS

TOY = ("--set", "workload.program=toyjob", "--set", "workload.recipe=toy", "--set", "workload.steps=4000")
GONE_S_MAX = 15.0


def processes_of(marker: str) -> list[int]:
    """Processes whose environment or command line holds the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if marker.encode() in text:
                found.append(int(entry.name))
    return found


def kernel_state() -> dict[str, set[str]]:
    """What a run could leave on this machine."""
    cgroups = {str(path) for path in Path("/sys/fs/cgroup").rglob("*torchchaos*")} if os.geteuid() == 0 else set()
    return {
        "links": set(os.listdir("/sys/class/net")),
        "named namespaces": set(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else set(),
        "mounts": {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
        "cgroups": cgroups,
        "temporary files": {str(path) for path in Path(tempfile.gettempdir()).glob("*torchchaos*")},
    }


@pytest.mark.parametrize("moment", ["start-up", "deploy", "baseline", "disturb", "quiesce", "drain"])
def test_nothing_is_left_after_sigkill(tmp_path, chaos_env, moment):
    before = kernel_state()
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
    deadline_s = time.monotonic() + GONE_S_MAX
    while alive := processes_of(marker):
        wait_for_end(alive[0], deadline_s)
    left = {kind: now - before[kind] for kind, now in kernel_state().items()}
    assert not any(left.values()), left


def wait_for_end(pid: int, deadline_s: float) -> None:
    """Wait until the process has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = select.select([pidfd], [], [], max(0.0, deadline_s - time.monotonic()))
        assert ended, f"{Path(f'/proc/{pid}/cmdline').read_bytes()!r} still lives {GONE_S_MAX} s after the runner"
    finally:
        os.close(pidfd)
