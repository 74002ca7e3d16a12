"""`lighthouse.freeze`: the lighthouse stands still."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Fault, Freeze, Injection


class LighthouseFreeze(Fault, frozen=True):
    """Stop the lighthouse where it is, and let it go on later; its connections stay open and are not answered.

    Why it happens: a paused virtual machine, a full disk under its log, a node that swaps. Nobody gets a quorum
    meanwhile; afterwards its idea of who is alive is as old as the pause.
    """

    name = "lighthouse.freeze"
    roles = frozenset({"lighthouse"})

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return map(Freeze, aim.targets)
