"""`process.segfault`: a trainer process crashes."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Fault, Injection, Process, Signal


class ProcessSegfault(Fault, frozen=True):
    """Make the trainer process of a replica crash with SIGSEGV; the pod and its Monarch worker host live on.

    Why it happens: a kernel or driver library that follows a stale pointer, a broken extension module, an illegal
    memory access in a collective. Crash handlers run and cores are written, so the death may take a while and come
    with output.
    """

    name = "process.segfault"

    grace_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """How long its handlers and its core may take."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (Signal(target, Process.TRAINER, int(signal.SIGSEGV), self.grace_s) for target in aim.targets)
