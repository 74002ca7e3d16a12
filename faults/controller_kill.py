"""`controller.kill`: the controller dies."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from chaos.api import Aim, Fault, Injection, Process, Signal


class ControllerKill(Fault, frozen=True):
    """Kill the Monarch controller with SIGKILL; it is started again and remembers nothing.

    Why it happens: the script that started everything is a process like any other, often on the smallest machine of
    all. Trainers need it for no step: they should train on, and the new controller should find them.
    """

    name = "controller.kill"
    roles = frozenset({"controller"})

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (Signal(target, Process.MAIN, int(signal.SIGKILL)) for target in aim.targets)
