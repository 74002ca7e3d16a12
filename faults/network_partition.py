"""`network.partition`: some replicas and the others cannot reach each other."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Direction, Drop, Fault, Injection


class NetworkPartition(Fault, frozen=True):
    """Cut replicas, or those of a node, off from the other replicas; all still reach lighthouse and controller.

    Why it happens: a switch, a routing mistake or a firewall rule between two racks. Both sides are well and say so,
    yet no exchange between them ends; a job without one arbiter would split in two. It may go on with either side.
    """

    name = "network.partition"
    roles = frozenset({"replica", "node"})

    one_way: bool = False
    """Only what the targets send is lost; they still hear the others."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        direction = Direction.OUT if self.one_way else Direction.BOTH
        others = aim.others()
        if not others:
            raise ValueError("every replica is a target: there is nobody to be cut off from")
        return (Drop(member, others, direction) for member in aim.members())
