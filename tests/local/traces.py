"""What a run can leave on a machine, seen from outside, and waiting until it is gone."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from chaos.platforms.local import owner, sweep

GONE_S = 15.0
OURS = ("/proc", "/sys", "/tmp", "/run", "/dev/shm", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf")


def processes_of(run_dir: Path) -> dict[int, str]:
    """Living processes that were started with the run's folder in their arguments: keeper, host, every pod."""
    found = {}
    for pid in owner.pids():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        stat = owner.stat(pid)
        if str(run_dir) in arguments and pid != os.getpid() and stat is not None and stat[0] not in "ZX":
            found[pid] = arguments
    return found


def process(run_dir: Path, program: str) -> int | None:
    """The run's keeper.py or host.py."""
    pids = [pid for pid, arguments in processes_of(run_dir).items() if program in arguments]
    return pids[0] if pids else None


class Traces:
    """Compares a machine before and after. What other runs leave at the same time is not looked at."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._links = _links()
        self._mounts = _mounts()
        self._before = set(sweep.find())

    def left(self) -> list[object]:
        left: list[object] = list(processes_of(self._run_dir).items())
        left += _links() - self._links
        left += _mounts() - self._mounts
        return left + self.leftovers()

    def leftovers(self) -> list[object]:
        """What `sweep` would remove."""
        return [leftover for leftover in sweep.find() if leftover not in self._before]

    def wait_until_gone(self) -> None:
        deadline = time.monotonic() + GONE_S
        while left := self.left():
            assert time.monotonic() < deadline, f"still there after {GONE_S} s: {left}"
            time.sleep(0.02)


def _links() -> set[str]:
    """Links of ours in the machine's own network namespace."""
    return {name for _index, name in socket.if_nameindex() if name.startswith(("control", "data", "net1"))}


def _mounts() -> set[str]:
    """Mounts where pods have theirs."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {line for line in lines if line.split()[4] in OURS or "/members/" in line}
