"""The runner's side of an agent: one short connection per request, every wait bounded.

`hold` is what a runner needs most: a lease that is renewed in the background and given back at the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from chaos.agent.wire import LINE_BYTES_MAX, Grant, Release, Renew, Reply, Request, State, Status

Peers = dict[str, tuple[str, ...]]
"""Addresses by name."""

ANSWER_S = 10.0
RENEWALS_PER_TTL = 3

_decoder = msgspec.json.Decoder(Reply)


class AgentLost(Exception):
    """The agent could not be reached or did not answer. Its leases end by themselves, at the latest when it is back."""


class Refused(Exception):
    """The agent did not do it, and says why."""


@dataclass
class Hold:
    """A lease in force. `lost` says why it ended before it was released; `reverted` is the proof once it has ended."""

    evidence: str
    lost: str = ""
    reverted: Reply | None = None


class Agent:
    """The agent that listens at `socket`."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def grant(self, grant: Grant) -> str:
        """The evidence that the injection is in force. Refused, AgentLost."""
        return (await self._ask(grant, refusable=True)).evidence

    async def renew(self, lease: str, peers: Peers | None = None) -> Reply:
        """Not `ok` when the lease has ended (`state` says how) or is no more in force. Refused for an unknown lease."""
        return await self._ask(Renew(lease, peers or {}))

    async def release(self, lease: str) -> Reply:
        """How the lease ended, with the evidence that its injection is reverted. Not `ok` while that is not proven."""
        return await self._ask(Release(lease))

    async def status(self) -> dict[str, State]:
        """Every lease that is held or stuck."""
        return (await self._ask(Status())).leases

    @asynccontextmanager
    async def hold(self, grant: Grant) -> AsyncIterator[Hold]:
        """Keep an injection in force while the context is open, as long as the agent lives. Refused, AgentLost."""
        hold = Hold(await self.grant(grant))

        async def keep() -> None:
            hold.lost = await self.keep(grant)

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(keep)
                try:
                    yield hold
                finally:
                    tasks.cancel_scope.cancel()
                    with anyio.CancelScope(shield=True):
                        hold.reverted = await self.release(grant.lease)
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None  # What went wrong inside the context, as it was raised.
            raise

    async def keep(self, grant: Grant, peers: Callable[[], Peers] = dict) -> str:
        """Renew the lease again and again; returns when it has ended before it was released, with the reason.

        `peers` gives the addresses that those in the grant have by then.
        """
        renewed_s = anyio.current_time()
        while True:
            await anyio.sleep(grant.ttl_s / RENEWALS_PER_TTL)
            try:
                if lost := (await self.renew(grant.lease, peers())).error:
                    return lost
                renewed_s = anyio.current_time()
            except AgentLost as error:  # A successor may be on its way, and will say how the lease ended.
                if anyio.current_time() - renewed_s > grant.ttl_s:
                    return str(error)
            except Refused as error:
                return str(error)

    async def _ask(self, request: Request, refusable: bool = False) -> Reply:
        try:
            with anyio.fail_after(ANSWER_S):
                async with await anyio.connect_unix(self._socket) as stream:
                    await stream.send(msgspec.json.encode(request) + b"\n")
                    line = await BufferedByteReceiveStream(stream).receive_until(b"\n", LINE_BYTES_MAX)
        except TimeoutError as error:
            raise AgentLost(f"no answer from {self._socket} within {ANSWER_S} s") from error
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead) as error:
            raise AgentLost(f"the agent at {self._socket} is gone: {error}") from error
        reply = _decoder.decode(line)
        if not reply.ok and (refusable or reply.state is None):
            raise Refused(reply.error)
        return reply
