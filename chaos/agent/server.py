"""The agent's socket: who may ask, how much, and one reply per line.

Open to the owner and root only. Connections, lines and idle time are bounded; a bad line is answered with what is
wrong with it. A client that goes away changes nothing: its leases run out.
"""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from chaos.agent.leases import Leases, Refused
from chaos.agent.linux.sockets import peer
from chaos.agent.wire import LINE_BYTES_MAX, Grant, Release, Renew, Reply, Request, Status

CONNECTIONS_MAX = 128
IDLE_S = 30.0


class Server:
    """Answers requests about `leases`."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._connections = 0
        self._decoder = msgspec.json.Decoder(Request)

    async def serve(self, path: Path) -> None:
        """Until cancelled. A socket that a dead agent left at `path` is replaced."""
        os.umask(0o177)
        listener = await anyio.create_unix_listener(path, mode=0o600)
        async with listener:
            await listener.serve(self._connection)

    async def _connection(self, stream: SocketStream) -> None:
        self._connections += 1
        try:
            async with stream:
                pid, uid = peer(stream.extra(SocketAttribute.raw_socket))
                refusal = ""
                if uid not in (0, os.geteuid()):
                    refusal = f"user {uid} is neither root nor the agent's"
                elif self._connections > CONNECTIONS_MAX:
                    refusal = f"{CONNECTIONS_MAX} connections are open, which is the most"
                await self._answer(stream, pid, refusal)
        except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead, anyio.ClosedResourceError):
            return  # The client is gone.
        finally:
            self._connections -= 1

    async def _answer(self, stream: SocketStream, client: int, refusal: str) -> None:
        """Line by line; with a refusal only the first, which is not looked at."""
        lines = BufferedByteReceiveStream(stream)
        while True:
            try:
                with anyio.fail_after(IDLE_S):
                    line = await lines.receive_until(b"\n", LINE_BYTES_MAX)
            except TimeoutError:
                return
            except anyio.DelimiterNotFound:
                refusal = f"a line is longer than {LINE_BYTES_MAX} bytes"
            if refusal:
                await _say(stream, Reply(ok=False, error=refusal))
                return
            await _say(stream, await self._reply(line, client))

    async def _reply(self, line: bytes, client: int) -> Reply:
        try:
            match self._decoder.decode(line):
                case Grant() as grant:
                    return await self._leases.grant(grant, client)
                case Renew(lease=lease, peers=peers):
                    return await self._leases.renew(lease, peers)
                case Release(lease=lease):
                    return await self._leases.release(lease)
                case Status():
                    return Reply(ok=True, leases=self._leases.status())
        except (Refused, msgspec.MsgspecError) as error:
            return Reply(ok=False, error=str(error))


async def _say(stream: SocketStream, reply: Reply) -> None:
    await stream.send(msgspec.json.encode(reply) + b"\n")
