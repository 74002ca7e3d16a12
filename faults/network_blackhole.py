"""`network.blackhole`: packets of the control plane vanish."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Drop, Fault, Injection


class NetworkBlackhole(Fault, frozen=True):
    """Lose all packets between a replica and the control plane, or all packets of the lighthouse or the controller.

    Why it happens: a wrong route, a security group, a stale entry in a load balancer: packets are dropped without an
    answer. No connection is refused or closed, so only timeouts tell, and a replica may train on for as long as it
    needs no quorum.
    """

    name = "network.blackhole"
    roles = frozenset({"replica", "lighthouse", "controller"})

    def injections(self, aim: Aim) -> Iterable[Injection]:
        control_plane = aim.others("lighthouse") + aim.others("controller")
        for target in aim.targets:
            yield Drop(target, control_plane if target in aim.topology.members("replica") else ())
