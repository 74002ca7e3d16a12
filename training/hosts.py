"""The controller's hand on Monarch: attach to a worker host, start a trainer there. Every wait here is the caller's to bound.

Monarch tells the end of a process late or never to one who waits for its endpoint, and by default ends the controller
when nobody handles a failure; so failures are only noted here, and lives are judged by their connections (``controller``).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any

import msgspec

from training.actor import Assignment, TrainerActor

log = logging.getLogger(__name__)


def open_transport(address: str) -> None:
    """Speak from ``address``; once, before anything else of Monarch is used in this process."""
    import monarch.actor

    monarch.actor.enable_transport(f"tcp://{address}:0")
    monarch.actor.unhandled_fault_hook = _note_failure


async def attach(monarch_address: str, name: str) -> Any:
    """The host mesh of one worker host, reached."""
    from monarch.actor import attach_to_workers

    mesh = attach_to_workers(workers=[monarch_address], name=name, ca="trust_all_connections")
    await mesh.initialized
    return mesh


def start_trainer(mesh: Any, name: str, assignment: Assignment) -> Awaitable[Any]:
    """Have Monarch start a trainer process on ``mesh``; the result awaits the end of its training."""
    processes = mesh.spawn_procs(name=name)
    actor = processes.spawn(name, TrainerActor)
    result: Awaitable[Any] = actor.train.call_one(msgspec.json.encode(assignment))
    return result


def _note_failure(failure: Any) -> None:
    log.info("Monarch says: %s", str(failure).strip().partition("\n")[0][:300])
