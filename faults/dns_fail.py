"""`dns.fail`: names do not resolve."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from chaos.api import Aim, Fault, Injection, NoNames


class Names(enum.Enum):
    """Whose names fail."""

    ALL = "all"
    REPLICAS = "replicas"


class DnsFail(Fault, frozen=True):
    """Let no name of another member resolve in a replica, or of another replica; connections that are open stay open.

    Why it happens: a name server that is overloaded or restarts, a headless service that does not publish a pod that
    is not ready, a pod whose bare name means nothing outside of it. A job that is connected notices nothing, until
    someone has to be met anew: at the next change of the quorum or heal.
    """

    name = "dns.fail"
    removes = False

    names: Names = Names.ALL

    def injections(self, aim: Aim) -> Iterable[Injection]:
        replicas = aim.topology.members("replica") if self.names is Names.REPLICAS else ()
        for target in aim.targets:
            yield NoNames(target, tuple(name for name in replicas if name != target))
