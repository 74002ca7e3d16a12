"""Keeps the injector of a cluster running: the agent that holds faults on pods while the runner renews their leases.

The agent runs beside the pods, in the host's namespaces, and is started again whenever it ends: its successor first
gives back what it held. Its socket and log lie in the run's `platform` folder, its ledger there as well, but in memory.
Used by the host only; what is asked of the agent goes there from the runner, not through here.
"""

from __future__ import annotations

import marshal
import os
import time
from typing import Any

from chaos.platforms.local import kernel, owner
from chaos.platforms.local.spec import Grant, Spec

SOCKET = "agent.sock"
RESTART_S = 0.1
STARTS_MAX = 1000

_ENTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "enter.py")


class Injector:
    """The agent process of one cluster."""

    def __init__(self, spec: Spec, grant: Grant) -> None:
        self._spec = spec
        self._mark = f"{grant.owner}/agent"
        folder = spec.platform_dir()
        ledger = folder / "ledger"
        ledger.mkdir(exist_ok=True)
        kernel.mount("tmpfs", str(ledger), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=700")
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        self._log = os.open(folder / "agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._pid: int | None = None
        self._starts = 0
        self._due_mono_s = 0.0

    def wait_s(self) -> float | None:
        """Seconds until it has to be started; None while it runs or is given up."""
        if self._pid is not None or self._starts >= STARTS_MAX:
            return None
        return max(0.0, self._due_mono_s - time.monotonic())

    def start_if_due(self) -> None:
        if self.wait_s() == 0.0:
            self._starts += 1
            self._pid = self._start()

    def ended(self, pid: int) -> bool:
        """Whether the child that ended was the agent; if so, the next one is due."""
        if pid != self._pid:
            return False
        self._pid = None
        self._due_mono_s = time.monotonic() + RESTART_S
        return True

    def _start(self) -> int:
        ledger = str(self._spec.platform_dir() / "ledger")
        command = [self._spec.python, "-m", "chaos.agent", "--ledger", ledger]
        status, status_in_child = os.pipe()
        os.set_inheritable(status_in_child, True)
        os.set_inheritable(self._folder, True)
        command += ["--socket", f"/proc/self/fd/{self._folder}/{SOCKET}"]
        plain: dict[str, Any] = {"net": None, "parent": os.getpid(), "status": status_in_child, "command": command}
        argv = [self._spec.python, "-I", "-S", _ENTER, marshal.dumps(plain | {"folder": "/"}).hex()]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(self._spec.sys_path), owner.MARKER: self._mark}
        actions: list[Any] = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, self._log, 1), (os.POSIX_SPAWN_DUP2, self._log, 2)]
        try:
            return os.posix_spawn(self._spec.python, argv, environ, file_actions=actions, setsid=True)
        finally:
            os.set_inheritable(self._folder, False)
            os.close(status_in_child)
            os.close(status)
