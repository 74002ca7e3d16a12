"""Keeps a node's agent alive: whatever kills it, another one is there at once.

A container that ends again and again is held back by the kubelet, in the end for minutes, and what its agent held would
last as long. So the container's first process does nothing but fork, with all that takes long to import in its memory.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable

from chaos.platforms.local import kernel

RESTART_S = 0.1

log = logging.getLogger(__name__)


def keep(work: Callable[[], int]) -> int:
    """Have `work` done by one process after the other until SIGTERM ends it in order; its exit status then."""
    child, over = 0, False

    def end(_number: int, _frame: object) -> None:
        nonlocal over
        over = True
        if child:
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    while True:
        with_signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        if over:
            return 0
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, with_signals)
            kernel.die_with_parent()
            os._exit(work())
        signal.pthread_sigmask(signal.SIG_SETMASK, with_signals)
        _pid, status = os.waitpid(child, 0)
        child = 0
        if over:
            return os.waitstatus_to_exitcode(status)
        log.warning("the agent ended with %d; another one begins", os.waitstatus_to_exitcode(status))
        time.sleep(RESTART_S)
