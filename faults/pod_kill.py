"""`pod.kill`: a member's pod is lost."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Delete, Fault, Injection


class PodKill(Fault, frozen=True):
    """End a member at once, with every process in it; its replacement starts with a new address and no memory.

    Why it happens: GPU and memory errors, node maintenance, evictions and preemptions all end as a pod that is gone
    without a word: no handler runs, no connection is closed by its owner. It is the most frequent end of a replica in
    large runs, and everything has to come back from nothing: process, address, Monarch attachment, quorum, state.
    """

    name = "pod.kill"
    roles = frozenset({"replica", "lighthouse", "controller"})

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return map(Delete, aim.targets)
