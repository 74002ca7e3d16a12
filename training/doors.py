"""Whether one member of a job reaches another: a door in each, and who knocks there.

A door takes connections and ends them. Kernels answer a knock, and are asked what came of it, so it tells of the
network between two members, not whether one of them is frozen, hung or starved. One that is refused has arrived too.
Not here: who is asked to knock where, and what follows (``controller``, ``paths``).
"""

from __future__ import annotations

import errno
import select
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack

from training import process
from training.announce import parse_address

KNOCK_EVERY_S, KNOCKS = 0.1, 10
"""A packet may be lost, and the kernel sends the first one of a connection again after a second only."""
KNOCKING_S = KNOCK_EVERY_S * KNOCKS

_ARRIVED = (0, errno.ECONNREFUSED)


def open_door(address: str, data_interface: str) -> list[str]:
    """Take connections for as long as this process lives; where: at its own address, and at its data interface's."""
    door = socket.create_server(("", 0))
    threading.Thread(target=_take_all, args=(door,), name="door", daemon=True).start()
    port = door.getsockname()[1]
    both = dict.fromkeys([address, process.address_of(data_interface) or address])
    return [f"{host}:{port}" for host in both]


def _take_all(door: socket.socket) -> None:
    while True:
        try:
            door.accept()[0].close()
        except OSError:  # of a visitor that is gone again, or no file descriptor is left
            time.sleep(KNOCK_EVERY_S)


def reached(doors: Sequence[str]) -> set[str]:
    """Those of the doors, each ``ADDRESS:PORT``, where a knock arrives. Takes ``KNOCKING_S``, or less if all do."""
    with ExitStack() as stack:
        knocks = Knocks(stack)
        for _ in range(KNOCKS):
            for door in set(doors) - knocks.arrived:
                knocks.begin(door)
            until_s = time.monotonic() + KNOCK_EVERY_S
            while not knocks.arrived.issuperset(doors) and knocks.heard(until_s):
                pass
        return knocks.arrived


class Knocks:
    """Those that are under way, and the doors where one arrived."""

    def __init__(self, stack: ExitStack) -> None:
        self.arrived: set[str] = set()
        self._stack = stack
        self._poll = select.poll()
        self._under_way: dict[int, tuple[str, socket.socket]] = {}

    def begin(self, door: str) -> None:
        knock = self._stack.enter_context(socket.socket())
        knock.setblocking(False)
        result = knock.connect_ex(parse_address(door))
        if result == errno.EINPROGRESS:
            self._under_way[knock.fileno()] = door, knock
            self._poll.register(knock, select.POLLOUT)
        elif result in _ARRIVED:
            self.arrived.add(door)

    def heard(self, until_s: float) -> bool:
        """Wait until some have arrived or failed; False when it is too late for that."""
        heard = self._poll.poll(max(0.0, until_s - time.monotonic()) * 1000)
        for number, _ in heard:
            self._poll.unregister(number)
            door, knock = self._under_way.pop(number)
            if knock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in _ARRIVED:
                self.arrived.add(door)
        return bool(heard)
