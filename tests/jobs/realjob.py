"""One ``training run`` as tests see it: what its members write, and their processes. Every wait is bounded."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from training import process
from training.faultpoints import SOCKET, TTL_S_MAX
from training.progress import EventFiles, Progress

WAIT_S_MAX = 150.0
LOOK_EVERY_S = 0.02
Event = dict[str, Any]


class Run:
    """One ``training run``, with a digest at every step, and what its members have written so far."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.out = folder / "run"
        self.events: list[Event] = []
        self._files = EventFiles(self.out / "events")
        command = [sys.executable, "-m", "training", "run", "--out", str(self.out), "--set", "digest_every=1", *options]
        self.printed = folder / "printed"
        with self.printed.open("wb") as printed:
            self.launcher = subprocess.Popen(command, stdout=printed, stderr=printed)

    def until(self, holds: Callable[[Event], bool]) -> Event:
        """The first event for which ``holds``, those of the past included."""
        deadline = time.monotonic() + WAIT_S_MAX
        looked = 0
        while time.monotonic() < deadline:
            self.events += self._files.new()
            for event in self.events[looked:]:
                if holds(event):
                    return event
            looked = len(self.events)
            time.sleep(LOOK_EVERY_S)
        pytest.fail(f"not seen within {WAIT_S_MAX:.0f} s; the launcher said:\n{self.printed.read_text()[-3000:]}")

    def until_committed(self, member: str, step: int, incarnation: int = 1) -> Event:
        """Update ``step`` or a later one, committed by this life of a member."""
        return self.until(
            lambda event: (
                (event["kind"], event["member"], event["incarnation"]) == ("step", member, incarnation)
                and event["committed"]
                and event["step"] >= step
            )
        )

    def until_step_after_heal(self, member: str, incarnation: int, otherwise: Callable[[Event], bool]) -> Event:
        """The second commit of a life, or what is asked for otherwise."""
        first = self.until(lambda event: otherwise(event) or is_commit(event, member, incarnation))
        if otherwise(first):
            return first
        return self.until(lambda event: otherwise(event) or (is_commit(event, member, incarnation) and event != first))

    def kill_host(self, member: str) -> None:
        """SIGKILL the worker host of a member."""
        for pid in process.children(self.launcher.pid):
            if f"--name\0{member}\0" in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, signal.SIGKILL)
                return
        pytest.fail(f"no worker host of {member}")

    def kill_trainer(self, member: str) -> None:
        """SIGKILL the newest trainer process of a member."""
        self.events += self._files.new()
        started = [event for event in self.events if (event["kind"], event["member"]) == ("trainer_started", member)]
        os.kill(started[-1]["pid"], signal.SIGKILL)

    def stop(self) -> int:
        """End the job in order; the exit status, 1 when two states differed."""
        self.launcher.send_signal(signal.SIGINT)
        status = self.launcher.wait(timeout=WAIT_S_MAX)
        self.events += self._files.new()
        return status

    def end(self) -> None:
        """However it is; nothing of it stays."""
        if self.launcher.poll() is None:
            self.launcher.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.launcher.wait(timeout=30)
            self.launcher.kill()
            self.launcher.wait()

    def progress(self) -> Progress:
        progress = Progress(steps=0)
        for event in self.events:
            progress.take(event)
        return progress

    def steps(self, **fields: Any) -> list[Event]:
        """Step events with these values."""
        tried = [event for event in self.events if event["kind"] == "step"]
        return [event for event in tried if all(event[name] == value for name, value in fields.items())]


def is_commit(event: Event, member: str, incarnation: int) -> bool:
    """Whether this life of a member committed an update."""
    who = (event["kind"], event["member"], event["incarnation"])
    return who == ("step", member, incarnation) and bool(event["committed"])


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Run]:
    """A run that is over on the way out."""
    job = Run(folder, *options)
    try:
        yield job
    finally:
        job.end()


@contextmanager
def ordered(job: Run, member: str, point: str, action: str, **fields: Any) -> Iterator[str]:
    """The id of an order that is armed meanwhile; the tests are done with it within its first time."""
    order = f"{member}.{point}.{action}"
    arm = {"do": "arm", "order": order, "ttl_s": TTL_S_MAX, "point": point, "action": action, **fields}
    assert ask(job, member, arm) == {"ok": True, "hits": 0}
    yield order
    ask(job, member, {"do": "disarm", "order": order})


def ask(job: Run, member: str, request: dict[str, Any]) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(WAIT_S_MAX)
        folder = os.open(job.out / "scratch" / member, os.O_PATH)
        connection.connect(f"/proc/self/fd/{folder}/{SOCKET}")
        os.close(folder)
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as lines:
            return json.loads(lines.readline())


def hit(job: Run, order: str) -> Event:
    """The first time that an order struck."""
    return job.until(lambda event: event["kind"] == "fault_point_hit" and event["order"] == order)
