"""Ending processes for sure: by pidfd, checked after it was opened, until none is left.

For clusters of plain processes, where the kernel does not end a pod's children with it. Standard library only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from chaos.platforms.local import owner

KILL_S = 5.0
_RETRY_S = 0.002

Belongs = Callable[[int], bool]


def kill_all(belongs: Belongs, within_s: float = KILL_S) -> list[int]:
    """SIGKILL every process that `belongs`, again until none lives; what still lives after `within_s` is returned."""
    deadline = time.monotonic() + within_s
    while True:
        left = [pid for pid in owner.pids() if belongs(pid) and _kill(pid, belongs)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_RETRY_S)


def _kill(pid: int, belongs: Belongs) -> bool:
    """Kill one; False when it is gone. The pidfd is held while `belongs` is asked again, so a reused pid is safe."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        stat = owner.stat(pid)
        if stat is None or stat[0] in "ZX" or not belongs(pid):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


def of_pod(mark: str, main: int) -> Belongs:
    """Processes that carry the pod's mark, or are in the session its main process led."""

    def belongs(pid: int) -> bool:
        stat = owner.stat(pid)
        return stat is not None and (stat[2] == main or owner.marker(pid) == mark)

    return belongs


def below(ancestor: int, of_owner: str) -> Belongs:
    """Descendants of `ancestor`, and processes that carry a mark of the owner."""

    def belongs(pid: int) -> bool:
        return pid != ancestor and (_descends(pid, ancestor) or (owner.marker(pid) or "").startswith(of_owner + "/"))

    return belongs


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        stat = owner.stat(pid)
        if stat is None:
            return False
        pid = stat[1]
        if pid == ancestor:
            return True
    return False


def reap() -> bool:
    """Collect children that ended; True when there is no child left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False
