"""`rdma.port_down`: RDMA ports lose their link."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Fault, Injection, PortDown, Rail


class RdmaPortDown(Fault, frozen=True):
    """Take down RDMA ports of a replica, one rail or all, by the net device of each, and give them back later.

    Why it happens: bad cables and optics between a card and its leaf switch, a leaf that restarts, firmware that resets
    a port. Gradients go over these ports and nothing else does, so heartbeats tell of a healthy replica.
    """

    name = "rdma.port_down"

    rail: Rail | None = None
    """Rail 0, 1 and so on, in the order of the RDMA devices' names; none: all of the target."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (PortDown(target, self.rail) for target in aim.targets)
