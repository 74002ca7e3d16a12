"""`nic.down`: a network interface loses its link."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Fault, Injection, Interface, LinkDown


class NicDown(Fault, frozen=True):
    """Take the link of one interface of a replica or node away, and give it back later with addresses and routes.

    Why it happens: bad cables and optics, a flapping switch port, a driver reset. With the data interface down
    gradients stop while heartbeats go on, so the replica looks alive and is of no use; with the control interface down
    it is the other way round.
    """

    name = "nic.down"
    roles = frozenset({"replica", "node"})

    interface: Interface = Interface.DATA

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (LinkDown(target, self.interface) for target in aim.targets)
