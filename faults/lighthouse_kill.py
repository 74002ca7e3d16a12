"""`lighthouse.kill`: the lighthouse dies."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from chaos.api import Aim, Fault, Injection, Process, Signal


class LighthouseKill(Fault, frozen=True):
    """Kill the lighthouse with SIGKILL; it is started again and remembers nothing.

    Why it happens: the one process that says who trains together is restarted, rescheduled or out of memory. The new
    one counts quorums from 1 again and knows nobody: a replica that gives up on the first refused request is lost, and
    a quorum handed to the first who asks splits the job.
    """

    name = "lighthouse.kill"
    roles = frozenset({"lighthouse"})

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (Signal(target, Process.MAIN, int(signal.SIGKILL)) for target in aim.targets)
