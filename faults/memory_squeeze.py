"""`memory.squeeze`: a replica can get no more memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Fault, Injection, MemoryLimit


class MemorySqueeze(Fault, frozen=True):
    """Limit the memory of a replica or node to a share of what it uses now; who needs more waits, nobody is killed.

    Why it happens: a limit that is a little too low, a cache of a neighbour, a host that reclaims. Everything that
    allocates is slow or stands still while the rest looks well.
    """

    name = "memory.squeeze"
    roles = frozenset({"replica", "node"})

    share: Annotated[float, Meta(ge=0.1, le=1)] = 1.0
    """The limit, as a share of the memory in use when it is set; refused when the kernel cannot take back enough."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (MemoryLimit(target, share_of_used=self.share) for target in aim.targets)
