"""`process.kill`: a trainer process dies while its pod lives on."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from chaos.api import Aim, Fault, Injection, Process, Signal


class ProcessKill(Fault, frozen=True):
    """Kill the trainer process of a replica with SIGKILL; the pod and its Monarch worker host live on.

    Why it happens: the kernel's out-of-memory killer, a crash in a CUDA or NCCL library, or a watchdog's abort takes
    the training process only. The pod still answers, so whoever watches pods sees nothing, and the death has to be
    noticed by those who own the process.
    """

    name = "process.kill"

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (Signal(target, Process.TRAINER, int(signal.SIGKILL)) for target in aim.targets)
