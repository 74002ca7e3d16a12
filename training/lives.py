"""Lives of members as the controller sees them: connections, and what is known of who is at their other end."""

from __future__ import annotations

import asyncio

import msgspec

from training import announce


class Line:
    """One connection of a member, seen from here."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        announce.keep_alive(writer.get_extra_info("socket"))

    async def read(self) -> announce.FromMember | None:
        """The next message; None when the peer's process ended. OSError: the link is cut, or the peer talks rubbish."""
        try:
            return announce.from_member(await self._reader.readuntil(b"\n"))
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None
        except (msgspec.DecodeError, asyncio.LimitOverrunError) as error:
            raise ConnectionAbortedError(f"not a message: {error}") from error

    def send(self, message: announce.Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(announce.encode(message))

    def close(self) -> None:
        self._writer.close()


class Life:
    """One life of a member, from the announcement of its worker host to the end of that connection."""

    def __init__(self, hello: announce.Worker, line: Line) -> None:
        self.hello = hello
        self.line = line
        self.key = (hello.name, hello.incarnation)
        self.tag = f"{hello.name}#{hello.incarnation}"
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.trainer_came = asyncio.Event()

    def end(self, reason: str) -> None:
        """The first reason counts."""
        if not self.over.done():
            self.over.set_result(reason)

    def dismiss(self, reason: str) -> None:
        """Have the worker host end; the end of its connection will be the end of this life."""
        self.line.send(announce.Exit(reason=reason))
