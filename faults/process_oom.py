"""`process.oom`: the kernel kills for want of memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Fault, Injection, MemoryLimit


class ProcessOom(Fault, frozen=True):
    """Limit the memory of a replica or node to a share of what it uses now, so that the kernel kills a process there.

    Why it happens: a data loader that leaks, a checkpoint staged in host memory, a neighbour on the node. The kernel
    takes the process that uses most, without a word to it, some time after the memory ran short; before that
    everything there is slow.
    """

    name = "process.oom"
    roles = frozenset({"replica", "node"})

    share: Annotated[float, Meta(gt=0, le=1)] = 0.5
    """The limit, as a share of the memory in use when it is set."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (MemoryLimit(target, share_of_used=self.share, kill=True) for target in aim.targets)
