"""`controller.cutoff`: nobody reaches the controller."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Fault, Injection, Interface, LinkDown


class ControllerCutoff(Fault, frozen=True):
    """Take the link of the controller away; it lives on and sees all members vanish.

    Why it happens: the controller's machine loses its network. To the controller everyone is dead, to everyone the
    controller is: replicas must train on, no replica may be replaced while it lives, and trainers that are reaped as
    orphans after a while turn a hiccup into an outage.
    """

    name = "controller.cutoff"
    roles = frozenset({"controller"})

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return (LinkDown(target, Interface.CONTROL) for target in aim.targets)
