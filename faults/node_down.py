"""`node.down`: a machine dies, and comes back."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Fault, Injection, NodeDown


class NodeDownFault(Fault, frozen=True):
    """Let a node die with every replica on it, and its links; nothing starts there until it is back.

    Why it happens: power, a kernel panic, a baseboard or a host that needs a reset. Connections are not closed but go
    silent, and the replicas cannot be started again in place: either there is another node, or the job waits for this
    one.
    """

    name = "node.down"
    roles = frozenset({"node"})

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return map(NodeDown, aim.targets)
