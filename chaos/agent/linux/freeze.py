"""Frozen processes: by the version 2 freezer of their group, or by SIGSTOP one by one.

The version 1 freezer is left alone on purpose: what it holds cannot be killed, so a cluster that is taken down while
one of its pods is frozen would never end. Stopped processes and those in a version 2 freezer end at SIGKILL.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from chaos.agent.linux.resource import Gone, Lease, NotInForce, Resource, State
from chaos.model.site import Site

FREEZE_S = 1.0
_RETRY_S = 0.001
_STOPPED, _ENDED = "Tt", "ZX"


class Freezer(Resource):
    """`cgroup.freeze` of one group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self.key = f"freezer {group}"

    def before(self) -> State:
        return {"frozen": self._read("cgroup.freeze")}

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        if not os.path.isdir(self._group):
            raise Gone(f"cgroup {self._group} is gone")
        wanted = "1" if leases else before["frozen"]
        with open(f"{self._group}/cgroup.freeze", "w") as file:
            file.write(wanted)

        def reached() -> bool:
            return f"frozen {wanted}" in self._read("cgroup.events").splitlines()

        if not _wait(reached):
            raise NotInForce(f"{self._group} did not reach frozen {wanted} within {FREEZE_S} s")
        return f"cgroup.events says frozen {wanted}, {len(members(self._group))} processes"

    def _read(self, name: str) -> str:
        with open(f"{self._group}/{name}") as file:
            return file.read().strip()


class Processes(Resource):
    """All processes of one site, stopped one by one: those in its group, else those in its pid namespace.

    A node's processes are its pods' as well, so what one site gives back may have to stay stopped for another.
    """

    _alone: ClassVar = threading.Lock()
    _holding: ClassVar[set[Processes]] = set()

    def __init__(self, site: Site) -> None:
        self._site = site
        self._group = next(iter(site.groups.values()), None)
        self.key = f"processes of {self._group or site.process}"

    def before(self) -> State:
        with self._alone:
            others = self._held_by_others()
            pids = [pid for pid, state in self._states().items() if state in _STOPPED and pid not in others]
        return {"stopped": " ".join(map(str, pids))}

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        with self._alone:
            if leases:
                self._holding.add(self)
                return self._signal_all(signal.SIGSTOP, lambda pid, state: state not in _STOPPED)
            self._holding.discard(self)
            stay = set(map(int, before["stopped"].split())) | self._held_by_others()
            return self._signal_all(signal.SIGCONT, lambda pid, state: state in _STOPPED and pid not in stay)

    def _signal_all(self, number: signal.Signals, wrong: Callable[[int, str], bool]) -> str:
        """Signal again until a look at all of them finds none to signal: the living may have had children."""
        states = self._states()
        if not states:
            self._holding.discard(self)
            raise Gone(f"no process of {self._site.name}.{self._site.incarnation} is left")

        def reached() -> bool:
            states.clear()
            states.update(self._states())
            pids = [pid for pid, state in states.items() if wrong(pid, state)]
            for pid in pids:
                _signal(pid, number)
            return not pids

        if not _wait(reached):
            raise NotInForce(
                f"{number.name} did not reach all of {len(states)} processes within {FREEZE_S} s: {states}"
            )
        stopped = sum(state in _STOPPED for state in states.values())
        return f"{stopped} of {len(states)} processes are stopped"

    def _held_by_others(self) -> set[int]:
        return {pid for other in self._holding - {self} for pid in other._pids()}

    def _states(self) -> dict[int, str]:
        """State letter of each living process by pid."""
        states = {pid: _state(pid) for pid in self._pids()}
        return {pid: state for pid, state in states.items() if state not in _ENDED}

    def _pids(self) -> list[int]:
        if self._group:
            return members(self._group)
        main = self._site.process
        if main is None or started(main.pid) != main.started_ticks:
            return []
        namespace = _pid_namespace(main.pid)
        if namespace == _pid_namespace(os.getpid()):
            raise NotInForce(f"{self._site.name} has neither a cgroup nor a pid namespace to know its processes by")
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _pid_namespace(pid) == namespace]


def started(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot, None when it is gone or ended and not yet collected."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in _ENDED else None


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state letter on; empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _state(pid: int) -> str:
    fields = _stat(pid)
    return fields[0] if fields else "X"


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def members(group: str) -> list[int]:
    """Every process in a group or below it."""
    pids = []
    for path, _names, _files in os.walk(group):
        try:
            with open(f"{path}/cgroup.procs") as file:
                pids += [int(line) for line in file if line != "0\n"]  # 0: not to be seen from this pid namespace.
        except FileNotFoundError:
            continue
    return pids


def _pid_namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _wait(reached: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + FREEZE_S
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(_RETRY_S)
    return True
