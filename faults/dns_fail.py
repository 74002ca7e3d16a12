"""`dns.fail`: names do not resolve."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Fault, Injection, NoNames


class DnsFail(Fault, frozen=True):
    """Let no name of another member resolve in a replica; connections that are open stay open.

    Why it happens: a name server that is overloaded or restarts, a headless service that does not publish a pod that
    is not ready. A job that is connected notices nothing, until someone has to be met anew: at the next change of the
    quorum or heal.
    """

    name = "dns.fail"
    removes = False

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return map(NoNames, aim.targets)
