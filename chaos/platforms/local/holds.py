"""Holding faults on a local cluster: what the injector does to the kernel, renewed from here until the context ends.

The injector of the cluster (`chaos.agent`) lies behind a socket in the run's `platform` folder. When it dies meanwhile
its successor gives back what it held; then the lease is gone, and the hold says so.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from chaos.agent.client import Agent, AgentLost, Peers, Refused
from chaos.agent.wire import Grant, Reply
from chaos.model.injections import Drop, KernelInjection, Proof
from chaos.model.ports import Hold, InjectionRefused
from chaos.model.site import Site
from chaos.platforms.local.injector import SOCKET

TTL_S = 3.0
UP_S = 10.0
"""For the injector to come up, or to come back and give back what its predecessor held."""
RETRY_S = 0.05


class Holds:
    """The runner's hand on the injector of one cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._agent = Agent(Path(f"/proc/self/fd/{self._folder}/{SOCKET}"))
        self._numbers = itertools.count(1)

    def close(self) -> None:
        os.close(self._folder)

    @asynccontextmanager
    async def hold(
        self, injection: KernelInjection, site: Site, addresses: Callable[[], Peers] = dict
    ) -> AsyncIterator[Hold]:
        """Keep an injection on a site. `addresses` are those of every living member, by name; a peer that is born again
        with another one is followed at the next renewal.
        """
        names = injection.peers if isinstance(injection, Drop) else ()

        def peers() -> Peers:
            return {name: known for name, known in addresses().items() if name in names}

        grant = Grant(f"{site.name}.{site.incarnation}-{next(self._numbers)}", TTL_S, injection, site, peers())
        held = Hold(grant.lease, Proof(site.name, site.incarnation, await self._grant(grant)))

        async def keep() -> None:
            held.trouble = await self._agent.keep(grant, peers)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep)
            try:
                yield held
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self._release(held)

    async def _grant(self, grant: Grant) -> str:
        try:
            with anyio.fail_after(UP_S):
                while True:
                    try:
                        return await self._agent.grant(grant)
                    except AgentLost:
                        await anyio.sleep(RETRY_S)
        except TimeoutError:
            raise InjectionRefused(f"the injector was not up within {UP_S:g} s; see platform/agent.log") from None
        except Refused as error:
            raise InjectionRefused(str(error)) from error

    async def _release(self, held: Hold) -> None:
        """End the lease and get the proof that it is undone, from the injector's successor if need be."""
        reply: Reply | None = None
        why = f"the injector did not answer within {UP_S:g} s"
        with anyio.move_on_after(UP_S):
            while reply is None or not reply.ok:
                try:
                    reply = await self._agent.release(held.order)
                    why = reply.error
                except AgentLost as error:
                    why = str(error)
                except Refused as error:
                    why = str(error)
                    break
                await anyio.sleep(0 if reply and reply.ok else RETRY_S)
        if reply is not None and reply.ok:
            held.reverted = Proof(held.proof.member, held.proof.incarnation, reply.evidence)
        else:
            held.trouble = held.trouble or why
