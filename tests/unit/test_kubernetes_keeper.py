"""The first process of an agent's container: there is always one agent, and never one without it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

WAIT_S = 20.0
STATUS = 3
PROGRAM = f"""
import os, signal, sys
from chaos.platforms.kubernetes.agent.keeper import keep

def work() -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
    print(os.getpid(), flush=True)
    signal.sigwait({{signal.SIGTERM}})
    return {STATUS}

sys.exit(keep(work))
"""


@pytest.fixture
def keeper() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def agent(keeper: subprocess.Popen[str]) -> int:
    """The next one that says it is there."""
    assert keeper.stdout is not None
    return int(keeper.stdout.readline())


def gone(pid: int) -> bool:
    """Whether it ends in time."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], WAIT_S)[0])
    finally:
        os.close(pidfd)


def test_one_that_is_killed_is_followed_by_another_and_the_end_is_in_order(keeper):
    first = agent(keeper)
    os.kill(first, signal.SIGKILL)
    second = agent(keeper)
    assert second != first
    keeper.terminate()
    assert keeper.wait(WAIT_S) == STATUS
    assert gone(second)


def test_no_agent_outlives_it(keeper):
    pid = agent(keeper)
    keeper.kill()
    assert gone(pid)
