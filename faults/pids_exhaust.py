"""`pids.exhaust`: no more processes can be started."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Fault, Injection, ProcessLimit


class PidsExhaust(Fault, frozen=True):
    """Let a replica or node start a few more processes and threads, and then no other.

    Why it happens: a limit of the node or the pod, and a leak of threads or of workers of a data loader that nobody
    waited for. What runs goes on; whatever wants a thread for a new connection fails.
    """

    name = "pids.exhaust"
    roles = frozenset({"replica", "node"})

    more: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """How many may be started before that."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (ProcessLimit(target, self.more) for target in aim.targets)
