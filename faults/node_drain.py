"""`node.drain`: a machine is emptied for maintenance."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Drain, Fault, Injection


class NodeDrain(Fault, frozen=True):
    """Empty a node: its replicas are asked to end and start on other nodes; none comes to it until this ends.

    Why it happens: planned maintenance is among the most frequent reasons for an interruption in large runs. Replicas
    come back elsewhere, with other addresses and other neighbours, while the machine they left is healthy.
    """

    name = "node.drain"
    roles = frozenset({"node"})

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return map(Drain, aim.targets)
