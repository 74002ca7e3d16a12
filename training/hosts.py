"""The controller's hand on Monarch: attach to a worker host, start a trainer there. The caller bounds every wait.

Monarch tells the end of a process late or never to one who waits for its endpoint, and by default ends the controller
when nobody handles a failure; so failures are only noted here, and ``controller`` judges lives by their connections.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, Protocol

import msgspec

from training.announce import Assignment

log = logging.getLogger(__name__)


class Hosts(Protocol):
    """What the controller needs of Monarch."""

    async def attach(self, address: str, name: str) -> Any:
        """The worker host at ``address``, reached; raises whatever Monarch raises."""

    def start_trainer(self, host: Any, name: str, assignment: Assignment) -> Awaitable[Any]:
        """Have a trainer process started; the result awaits the end of its training."""


class MonarchHosts:
    """Monarch, spoken to from ``address``. One per process, made before anything else of Monarch is used."""

    def __init__(self, address: str) -> None:
        import monarch.actor

        monarch.actor.enable_transport(f"tcp://{address}:0")
        monarch.actor.unhandled_fault_hook = _note_failure

    async def attach(self, address: str, name: str) -> Any:
        from monarch.actor import attach_to_workers

        host = attach_to_workers(workers=[address], name=name, ca="trust_all_connections")
        await host.initialized
        return host

    def start_trainer(self, host: Any, name: str, assignment: Assignment) -> Awaitable[Any]:
        from training.actor import TrainerActor

        actor = host.spawn_procs(name=name).spawn(name, TrainerActor)
        result: Awaitable[Any] = actor.train.call_one(msgspec.json.encode(assignment))
        return result


def _note_failure(failure: Any) -> None:
    log.info("Monarch says: %s", str(failure).strip().partition("\n")[0][:300])
