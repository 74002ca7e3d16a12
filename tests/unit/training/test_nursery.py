"""What a nursery asks of the kernel: is a process stopped, where is its door."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from training import nursery, process


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        yield running
        running.kill()


def test_a_process_that_somebody_stopped_is_not_hung(child: subprocess.Popen[bytes]) -> None:
    assert not nursery.stopped(child.pid)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert nursery.stopped(child.pid)
    child.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, child.pid, os.WCONTINUED)
    assert not nursery.stopped(child.pid)


def test_a_process_that_is_gone_is_nobody_to_end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    assert nursery.stopped(child.pid)


def test_a_child_whose_pipe_is_closed_before_it_is_dead_is_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "import os; os.close(1); input()"], stdin=-1, stdout=-1) as dying:
        assert dying.stdin is not None and dying.stdout is not None
        child = nursery.Child(dying.pid, dying.stdout.fileno(), dying.stdin.fileno())
        began_s = time.monotonic()
        while child.silent_ticks < 5:
            assert child.listen(0.02)
        assert time.monotonic() - began_s >= 4 * 0.02
        dying.kill()
        assert not child.listen(10)
        os.close(child._end)


def test_the_door_of_the_next_life_replaces_that_of_the_last_however_long_its_path(tmp_path: Path) -> None:
    scratch = tmp_path / ("long" * 50)
    scratch.mkdir()
    with nursery.listen(str(scratch)), nursery.listen(str(scratch)) as door, socket.socket(socket.AF_UNIX) as caller:
        folder = os.open(scratch, os.O_PATH)
        caller.connect(f"/proc/self/fd/{folder}/{nursery.SOCKET}")
        os.close(folder)
        door.settimeout(5)
        door.accept()[0].close()


def test_loopback_has_its_link_and_an_unknown_interface_nothing_to_lose() -> None:
    assert process.has_link("lo")
    assert process.has_link("none0")
