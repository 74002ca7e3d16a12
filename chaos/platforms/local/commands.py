"""Commands to the host of a local cluster, and its answers."""

from __future__ import annotations

import socket
from typing import Any

import anyio

from chaos.model.ports import InjectionRefused, PlatformLost
from chaos.platforms.local import channel

REPLY_S = 5.0


class Commands:
    """Sends commands over the control channel; whoever reads the channel hands the answers in."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._waiting: dict[int, tuple[anyio.Event, list[str | None]]] = {}
        self._count = 0

    def answered(self, number: int, error: str | None) -> None:
        """Take an answer in."""
        if number in self._waiting:
            done, answer = self._waiting[number]
            answer.append(error)
            done.set()

    async def send(self, do: str, **arguments: Any) -> None:
        """Have the host do it. InjectionRefused when it will not, PlatformLost when it does not answer."""
        self._count += 1
        number = self._count
        done = anyio.Event()
        answer: list[str | None] = []
        self._waiting[number] = (done, answer)
        try:
            channel.send(self._control, {"id": number, "do": do, **arguments})
        except OSError as error:
            raise PlatformLost(f"the host takes no commands: {error.strerror}") from error
        with anyio.move_on_after(REPLY_S):
            await done.wait()
        del self._waiting[number]
        if not answer:
            raise PlatformLost(f"the host did not answer {do} within {REPLY_S} s")
        if answer[0] is not None:
            raise InjectionRefused(answer[0])
