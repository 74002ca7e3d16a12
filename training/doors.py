"""Whether one member of a job reaches another: a door in each, and who knocks there.

A door takes connections and ends them. The kernel answers for a process that is frozen or hung, so a knock tells of the
network between two members and of nothing else. One that is refused has arrived as well.
Not here: who is asked to knock where, and what follows (``controller``, ``paths``).
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterable

from training import process
from training.announce import Peer, parse_address

KNOCK_S = 1.0
KNOCK_EVERY_S = 0.1
"""A packet may be lost, and the kernel sends the first one of a connection again after a second only."""


def open_door(address: str, data_interface: str) -> list[str]:
    """Take connections for as long as this process lives; where: at its own address, and at its data interface's."""
    door = socket.create_server(("", 0))
    threading.Thread(target=_take_all, args=(door,), name="door", daemon=True).start()
    port = door.getsockname()[1]
    return [f"{host}:{port}" for host in dict.fromkeys([address, *process.addresses(data_interface)])]


def _take_all(door: socket.socket) -> None:
    while True:
        try:
            door.accept()[0].close()
        except OSError:  # of a visitor that is gone again, or no file descriptor is left
            time.sleep(KNOCK_EVERY_S)


def knock(peers: Iterable[Peer]) -> list[bool]:
    """For each whether all its doors are reached, from this process. Takes ``KNOCK_S``, or less if they are."""

    async def all_of(peer: Peer) -> bool:
        return all(await asyncio.gather(*map(_reaches, peer.doors)))

    async def all_peers() -> list[bool]:
        return await asyncio.gather(*map(all_of, peers))

    return asyncio.run(all_peers())


async def _reaches(door: str) -> bool:
    """One door, at which one knocks again and again."""
    host, port = parse_address(door)

    async def knock_after(pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        try:
            _, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            return
        writer.close()

    knocks = [asyncio.ensure_future(knock_after(pause * KNOCK_EVERY_S)) for pause in range(round(KNOCK_S / KNOCK_EVERY_S))]
    try:
        for heard in asyncio.as_completed(knocks, timeout=KNOCK_S):
            try:
                await heard
                return True
            except TimeoutError:
                return False
            except OSError:
                continue
        return False
    finally:
        for one in knocks:
            one.cancel()
        await asyncio.gather(*knocks, return_exceptions=True)
