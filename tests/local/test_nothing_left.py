"""However a run ends, nothing of it stays: no process, namespace, link, mount, cgroup or temporary folder.

A network or mount namespace lives only through processes and open files, so it is gone with the processes.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from clusters import COMMAND, WAIT_S, Journal, toy_cluster, toy_deployment
from traces import Traces, process, processes_of

from chaos.model.ports import PlatformLost
from chaos.platforms.local import sweep
from chaos.platforms.local.platform import LocalPlatform

RUNNER = str(Path(__file__).with_name("clusters.py"))
RUNNERS = 6
START_UP_S = 4.0


@contextmanager
def runner(run_dir: Path, isolation: str) -> Iterator[subprocess.Popen[str]]:
    """A runner of its own, in a process group of its own as a terminal would give it."""
    command = [sys.executable, RUNNER, str(run_dir), isolation]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0) as one:
        try:
            yield one
        finally:
            one.kill()


def wait_up(one: subprocess.Popen[str], run_dir: Path) -> None:
    """Until the cluster is up, with an orphan in two pods. Its keeper has a session of its own, for Ctrl-C's sake."""
    assert one.stdout is not None and one.stderr is not None
    assert select.select([one.stdout], [], [], WAIT_S)[0], "not up in time"
    assert one.stdout.readline() == "up\n", one.stderr.read()
    assert len(processes_of(run_dir)) >= 1 + 2 + 3 + 2 + 2, "runner, keeper and host, mains, trainers, orphans"
    keeper = process(run_dir, "keeper.py")
    assert keeper is not None and os.getsid(keeper) == keeper


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_runner_ends_by_a_signal(tmp_path: Path, isolation: str, number: signal.Signals) -> None:
    traces = Traces(tmp_path)
    with runner(tmp_path, isolation) as one:
        wait_up(one, tmp_path)
        os.killpg(one.pid, number)
        assert one.wait(WAIT_S) != 0
    traces.wait_until_gone()


def test_runners_are_killed_while_they_start(tmp_path: Path, isolation: str) -> None:
    traces = Traces(tmp_path)
    chance = random.Random(isolation)
    started, runners = time.monotonic(), []
    with ExitStack() as stack:
        for number in range(RUNNERS):
            run_dir = tmp_path / str(number)
            run_dir.mkdir()
            runners.append(stack.enter_context(runner(run_dir, isolation)))
        for one, moment_s in zip(runners, sorted(chance.uniform(0.3, START_UP_S) for _ in runners), strict=True):
            with suppress(subprocess.TimeoutExpired):
                one.wait(max(0.0, started + moment_s - time.monotonic()))
            one.kill()
    traces.wait_until_gone()


@pytest.mark.parametrize("program", ["host.py", "keeper.py"])
def test_the_runner_learns_that_its_cluster_was_killed(tmp_path: Path, isolation: str, program: str) -> None:
    traces = Traces(tmp_path)
    with runner(tmp_path, isolation) as one:
        wait_up(one, tmp_path)
        pid = process(tmp_path, program)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert one.stderr is not None
        words = one.stderr.read()
        assert one.wait(WAIT_S) == 1
    assert "PlatformLost: the host of the local platform ended" in words
    traces.wait_until_gone()


def test_sweep_removes_what_a_killed_keeper_and_runner_leave(tmp_path: Path, isolation: str) -> None:
    traces = Traces(tmp_path)
    with runner(tmp_path, isolation) as one:
        wait_up(one, tmp_path)
        keeper = process(tmp_path, "keeper.py")
        assert keeper is not None
        assert not traces.leftovers(), "a living run is not swept"
        one.send_signal(signal.SIGSTOP)
        os.kill(keeper, signal.SIGKILL)
        one.kill()
        one.wait(WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while process(tmp_path, "host.py") is not None:
        assert time.monotonic() < deadline, "the host outlives its keeper"
    if isolation != "user-namespaces":
        assert traces.leftovers()
    assert sweep.remove(sweep.find()) == []
    traces.wait_until_gone()


@pytest.mark.anyio
async def test_leaving_the_context_by_an_error_or_a_cancel_ends_all(tmp_path: Path, isolation: str) -> None:
    traces = Traces(tmp_path)
    with pytest.raises(KeyError, match="mine"):
        async with toy_cluster(tmp_path, isolation):
            raise KeyError("mine")
    assert traces.left() == []
    with anyio.CancelScope() as scope:
        async with toy_cluster(tmp_path, isolation):
            scope.cancel()
            await anyio.sleep_forever()
    assert traces.left() == []


@pytest.mark.anyio
async def test_a_command_that_does_not_exist_is_the_members_failure(tmp_path: Path, isolation: str) -> None:
    deployment, journal = toy_deployment(tmp_path, 1, command=("no-such-command",)), Journal()
    async with LocalPlatform(isolation).deploy(deployment, journal.emit):
        exited = await journal.wait(lambda event: event.kind == "member_exited")
    assert exited.member == "replica-0" and getattr(exited, "status", None) == 127
    assert "no-such-command" in (tmp_path / "members" / "replica-0" / "1.log").read_text()


@pytest.mark.anyio
async def test_a_pod_that_cannot_be_set_up_breaks_the_platform_with_the_reason(tmp_path: Path, separate: str) -> None:
    traces = Traces(tmp_path)
    deployment, journal = toy_deployment(tmp_path, 1, command=(*COMMAND, "{mistake}")), Journal()
    with pytest.raises(PlatformLost, match="mistake"):
        async with LocalPlatform(separate).deploy(deployment, journal.emit):
            pass
    assert traces.left() == []
