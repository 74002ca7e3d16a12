"""`rdma.vf_gone`: RDMA devices are gone from a replica."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Fault, Injection, PortGone, Rail


class RdmaVfGone(Fault, frozen=True):
    """Take the net devices of RDMA ports, such as VFs, out of a replica, and give them back with all they had.

    Why it happens: a device plugin or driver that is updated below a running pod, a card that falls off the bus, a VF
    that is given to another pod. Libraries that look for cards again find none, and may go on over TCP without a word.
    """

    name = "rdma.vf_gone"

    rail: Rail | None = None
    """Rail 0, 1 and so on, in the order of the RDMA devices' names; none: all of the target."""

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (PortGone(target, self.rail) for target in aim.targets)
