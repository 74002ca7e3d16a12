"""`pod.evict`: a member's pod is asked to go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Evict, Fault, Injection


class PodEvict(Fault, frozen=True):
    """Ask a member to end, as an eviction does: SIGTERM to its main process, the end by force after a grace.

    Why it happens: maintenance, preemption by a job of higher priority, a node short of disk or memory. There is time
    to say goodbye; a job that does not use it loses no more than by a crash, but may train on for the whole grace with
    a replica that is on its way out.
    """

    name = "pod.evict"
    roles = frozenset({"replica", "lighthouse", "controller"})

    grace_s: Annotated[float, Meta(ge=0, le=600)] = 10.0
    """From the request to the end by force."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (Evict(target, self.grace_s) for target in aim.targets)
