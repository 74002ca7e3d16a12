"""`nic.flap`: a network interface loses its link again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from chaos.api import Aim, Fault, Injection, Interface, LinkDown, Rhythm


class NicFlap(Fault, frozen=True):
    """Take the link of one interface of a replica or node away and give it back, over and over.

    Why it happens: a cable or transceiver that is about to fail, a port that renegotiates. Each loss may be shorter
    than any timeout, so nobody is ever declared dead, while every loss costs a step, a reconfiguration or both.
    """

    name = "nic.flap"
    roles = frozenset({"replica", "node"})

    interface: Interface = Interface.DATA
    period_s: Annotated[float, Meta(ge=0.5, le=120)] = 4.0
    duty: Annotated[float, Meta(ge=0.05, le=0.95)] = 0.5
    """The share of each period without a link."""

    @property
    def rhythm(self) -> Rhythm:
        return Rhythm(self.period_s, self.duty)

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (LinkDown(target, self.interface) for target in aim.targets)
