"""`process.terminate`: a trainer process is told to end."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Fault, Injection, Process, Signal


class ProcessTerminate(Fault, frozen=True):
    """Send SIGTERM to the trainer process of a replica; the pod and its Monarch worker host live on.

    Why it happens: schedulers, launchers and operators end a process by SIGTERM when they want its machine back, and
    some send it to the process that computes and not to the one that answers for it. A handler may run, and the
    libraries below may or may not close their connections.
    """

    name = "process.terminate"

    grace_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """How long it may take to end."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (Signal(target, Process.TRAINER, int(signal.SIGTERM), self.grace_s) for target in aim.targets)
