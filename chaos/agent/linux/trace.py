"""One process stopped thread by thread, as a debugger stops it (ptrace): it goes on when its tracer ends.

For a process that the agent itself may depend on, such as the kubelet, which would start it again: the kernel lets go
of what a dead tracer holds, so nothing has to be alive to end this. Layouts: ptrace(2), linux/ptrace.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from chaos.agent.linux.freeze import started
from chaos.agent.linux.resource import Gone, Lease, NotInForce, Resource, State
from chaos.model.site import MainProcess

STOP_S = 2.0
_RETRY_S = 0.001
_REAP_S = 0.05
_SEIZE, _INTERRUPT = 0x4206, 0x4207
_WALL = 0x40000000
"""Wait for threads too."""
_TRACED = "t"
_libc = ctypes.CDLL(None, use_errno=True)


class Stopped(Resource):
    """Every thread of one process."""

    def __init__(self, process: MainProcess) -> None:
        self._process = process
        self._tracer: _Tracer | None = None
        self.key = f"threads of process {process.pid}"

    def before(self) -> State:
        if _TRACED in self._states():
            raise NotInForce(f"process {self._process.pid} is stopped by a debugger already")
        return {}

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        if leases and self._tracer is None:
            self._states()
            self._tracer = _Tracer(self._process.pid)
            self._tracer.stop_all()
        elif not leases and self._tracer is not None:
            self._tracer.let_go()
            self._tracer = None
        states, deadline = self._states(), time.monotonic() + STOP_S
        while states.count(_TRACED) != (len(states) if leases else 0):
            if time.monotonic() > deadline:
                raise NotInForce(f"threads of process {self._process.pid} are in the states {states}")
            time.sleep(_RETRY_S)
            states = self._states()
        return f"{states.count(_TRACED)} of {len(states)} threads of process {self._process.pid} are stopped"

    def _states(self) -> str:
        """The state letter of each thread."""
        if started(self._process.pid) != self._process.started_ticks:
            raise Gone(f"process {self._process.pid} is gone")
        return "".join(_state(self._process.pid, thread) for thread in _threads(self._process.pid))


class _Tracer:
    """A thread of ours that holds the threads of a process. With its end, however it comes, they go on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._failure = ""
        self._done = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._hold, name=f"tracer of {pid}", daemon=True)

    def stop_all(self) -> None:
        """NotInForce when that cannot be."""
        self._thread.start()
        if not self._done.wait(STOP_S):
            self._failure = f"not all threads were stopped within {STOP_S:g} s"
        if self._failure:
            self.let_go()
            raise NotInForce(f"process {self._pid} cannot be stopped: {self._failure}")

    def let_go(self) -> None:
        self._end.set()
        self._thread.join(STOP_S)

    def _hold(self) -> None:
        held: set[int] = set()
        try:
            while new := set(_threads(self._pid)) - held:  # The running ones may have made more meanwhile.
                for thread in new:
                    _stop(thread)
                held |= new
        except OSError as error:
            self._failure = str(error)
        self._done.set()
        while not self._end.wait(_REAP_S):  # Until we have seen it end, the parent of a dead process does not.
            for thread in held:
                with suppress(ChildProcessError):
                    os.waitpid(thread, _WALL | os.WNOHANG)


def _stop(thread: int) -> None:
    """One that has ended meanwhile needs no stopping."""
    for request in (_SEIZE, _INTERRUPT):
        if _libc.ptrace(request, thread, None, None) != 0:
            number = ctypes.get_errno()
            if number != errno.ESRCH:
                raise OSError(number, os.strerror(number))
            return
    with suppress(ChildProcessError):
        os.waitpid(thread, _WALL)


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except FileNotFoundError:
        return []


def _state(pid: int, thread: int) -> str:
    try:
        with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
            return chr(file.read().rpartition(b")")[2].split()[0][0])
    except (FileNotFoundError, ProcessLookupError):
        return ""
