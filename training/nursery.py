"""A process that has imported all that a trainer needs and forks trainers, so that a new one is back without imports.

One per worker host, which starts it, hands it a listening socket and ends with it. Who connects there (``actor``) sends
an assignment and gets a line when its training is over. A trainer that dies is followed at once by another in the same
life of the member. With ``respawn=standby`` that one was forked and built when the first had settled, and waits.
A trainer that does not tell for ``hang_s``, although it is not stopped from outside, holds Python's lock. What it hangs
in may be no fault of the process alone, so all of the member ends with it, and its next life begins from nothing.
Monarch is not imported here: its threads would not survive the fork.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from training import announce, process, recipes

SOCKET = "nursery.sock"
TICK_S = 0.2
SHORT_LIFE_S = 10.0
RETRY_S_MAX = 5.0
ALIVE, SETTLED, GO = b".", b"s", b"g"
LINE_BYTES_MAX = 65_536

log = logging.getLogger(__name__)


def start(recipe: str, scratch: str) -> subprocess.Popen[bytes]:
    """Start the nursery of a member; it ends with this process."""
    with listen(scratch) as door:
        command = [sys.executable, "-m", "training", "nursery", "--recipe", recipe, "--door", str(door.fileno())]
        return subprocess.Popen(command, pass_fds=[door.fileno()], preexec_fn=process.die_with_parent)


def listen(scratch: str) -> socket.socket:
    """The nursery's door. A path of any length will do."""
    folder = os.open(scratch, os.O_PATH | os.O_DIRECTORY)
    try:
        path = f"/proc/self/fd/{folder}/{SOCKET}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        door = socket.socket(socket.AF_UNIX)
        door.bind(path)
        door.listen()
        return door
    finally:
        os.close(folder)


def train(assignment: announce.Assignment) -> str:
    """Have an assignment trained by the nursery of this member, to its end. OSError: the nursery ended."""
    folder = os.open(assignment.worker.scratch, os.O_PATH | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(f"/proc/self/fd/{folder}/{SOCKET}")
        os.close(folder)
        line.sendall(msgspec.json.encode(assignment) + b"\n")
        with line.makefile("rb") as answers:
            answer = answers.readline()
    if not answer:
        raise ConnectionError("the nursery ended")
    return answer.decode().strip()


def main(*, recipe: str, door: int) -> None:
    """Import, then train what is asked for, one assignment after the other. Never returns."""
    gc.disable()
    import_all(recipe)
    gc.collect()
    gc.freeze()  # shared with every fork
    with socket.socket(fileno=door) as listening:
        while True:
            line, _ = listening.accept()
            with line, line.makefile("rb") as orders, contextlib.suppress(OSError):
                order = orders.readline(LINE_BYTES_MAX)
                Family(msgspec.json.decode(order, type=announce.Assignment)).train()
                line.sendall(b"trained\n")


def import_all(recipe: str) -> None:
    """What a trainer imports, in the order in which it must."""
    if recipes.find(recipe).device == "cpu":
        from training import cpu

        cpu.install()
    from training import life, trainer

    assert life and trainer


class Child:
    """A forked trainer, seen from its parent."""

    def __init__(self, pid: int, told: int, go: int) -> None:
        """``told``: the pipe with its signs of life; ``go``: one on which to tell a stand-in that it is its turn."""
        self.pid = pid
        self.born_s = time.monotonic()
        self.silent_ticks = 0
        self.settled = False
        self._dying = False
        self._told = told
        self._go = go
        self._end = os.pidfd_open(pid)

    def take_over(self) -> None:
        """To a stand-in: the trainer is dead, you are it."""
        self.born_s = time.monotonic()
        with contextlib.suppress(OSError):
            os.write(self._go, GO)

    def listen(self, tick_s: float) -> bool:
        """Hear what it tells, for a while; False when it is dead. The pipe of one that dies is closed before that."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        if not self._dying:
            poll.register(self._told, select.POLLIN)
        ready = {number for number, _ in poll.poll(tick_s * 1000)}
        if self._end in ready:
            return False
        heard = b""
        if self._told in ready:
            heard = os.read(self._told, 4096)
            self._dying = not heard
        self.settled = self.settled or SETTLED in heard
        self.silent_ticks = 0 if heard else self.silent_ticks + 1
        return True

    def status(self) -> int:
        """Of a dead one: 0 when it ended in order."""
        _, status = os.waitpid(self.pid, 0)
        for number in (self._told, self._go, self._end):
            os.close(number)
        return status


def fork(assignment: announce.Assignment, stand_in: bool) -> Child:
    """A new trainer, or one that waits for its turn."""
    told, tell = os.pipe()
    wait, go = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        os.close(go)
        _live(assignment, tell, wait if stand_in else None)
    os.close(tell)
    os.close(wait)
    return Child(pid, told, go)


class Family:
    """The trainers that follow each other in one assignment."""

    def __init__(self, assignment: announce.Assignment) -> None:
        self._assignment = assignment
        self._settings = assignment.job.settings
        self._stand_in: Child | None = None

    def train(self) -> None:
        """To the end of the job. When too many died young in a row, this life of the member is no good: SystemExit."""
        deaths = 0
        while True:
            child = self._next()
            self._attend(child)
            lived_s = time.monotonic() - child.born_s
            status = child.status()
            if status == 0:
                return
            deaths = 1 if child.settled or lived_s > SHORT_LIFE_S else deaths + 1
            log.warning("trainer %d ended after %.1f s with status %d", child.pid, lived_s, status)
            if deaths >= self._settings.attach_attempts:
                sys.exit(f"{deaths} trainers in a row ended young")
            time.sleep(0 if deaths == 1 else min(0.1 * 2**deaths, RETRY_S_MAX))

    def _next(self) -> Child:
        stand_in, self._stand_in = self._stand_in, None
        if stand_in is None:
            return fork(self._assignment, stand_in=False)
        stand_in.take_over()
        return stand_in

    def _attend(self, child: Child) -> None:
        """Until it is dead."""
        silent_ticks_max = self._settings.hang_s / TICK_S or float("inf")
        while child.listen(TICK_S):
            if child.settled and self._stand_in is None and self._settings.respawn == "standby":
                self._stand_in = fork(self._assignment, stand_in=True)
            if child.settled and child.silent_ticks > silent_ticks_max and not stopped(child.pid):
                os.kill(child.pid, signal.SIGKILL)  # its own threads cannot see that we end
                sys.exit(f"trainer {child.pid} told nothing for {child.silent_ticks * TICK_S:.1f} s")


def stopped(pid: int) -> bool:
    """Whether somebody stopped a process, by a signal or in a debugger; it is not hung, and may go on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "tT"
    except OSError:
        return True


def _live(assignment: announce.Assignment, tell: int, wait: int | None) -> None:
    """The forked process. Never returns."""
    from training import life

    try:
        life.Life(assignment, tell=tell, wait=wait).run()
        signal.pause()  # it repeats its last words to every controller that comes
    finally:
        os._exit(1)
