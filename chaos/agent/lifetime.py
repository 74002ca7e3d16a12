"""The life of a program that holds leases: sweep first, serve until a signal, give everything back at the end.

Not here: who may ask for a lease (`server`; on a cluster, the agent of the node).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from chaos.agent.leases import Leases
from chaos.agent.ledger import Ledger

Service = Callable[[Leases], Coroutine[Any, Any, None]]


async def hold_until_signal(ledger: Ledger, *services: Service) -> None:
    """Run the services over one set of leases until SIGTERM or SIGINT asks for the end."""
    leases = Leases(ledger)
    await leases.sweep()
    try:
        async with anyio.create_task_group() as tasks:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                tasks.start_soon(leases.run)
                for service in services:
                    tasks.start_soon(service, leases)
                async for _signal in signals:
                    tasks.cancel_scope.cancel()
    finally:
        await leases.end_all()
