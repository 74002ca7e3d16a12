"""A Gloo process group that can be left at any time: a wait in it ends at once, also for the peers, and for it.

Gloo waits for a peer that says nothing until its timeout, and has no abort. Here leaving cuts the connections of the
group in this process, so every wait on either end fails, and no late data can reach a tensor that is in use again.
A group is made by a thread that is left to itself when the group is given up before it is there.
Not here: NCCL, which aborts by itself, and who decides to leave (``healing``).
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torchft
from torch.distributed import Work

from training.waits import Waits


class LeavableGloo(torchft.ProcessGroupGloo):  # type: ignore[misc]
    """TorchFT's group over Gloo, whose ``abort`` and ``give_up`` may be called from any thread."""

    def __init__(self, timeout: timedelta, waits: Waits) -> None:
        super().__init__(timeout)
        self._waits = waits
        self._making: queue.SimpleQueue[Any] | None = None
        self.before_making: Callable[[], None] = lambda: None
        """Called when a group is in the making, and may be given up."""

    _connections: frozenset[str] = frozenset()

    def configure(self, *where: Any, **options: Any) -> None:
        """Raises what making it raises, or what it is given up for."""
        self.abort(errored=False)
        before = frozenset(name for _, name in sockets())
        making = self._making = queue.SimpleQueue()
        self.before_making()
        maker = torchft.ProcessGroupGloo(self._timeout)
        threading.Thread(target=_make, args=(maker, making, where, options), name="group-making", daemon=True).start()
        made, self._making = making.get(), None
        if isinstance(made, Exception):
            raise made
        self._pg = made
        self._replica_id, self._rank, self._quorum_id = maker._replica_id, maker._rank, maker._quorum_id  # for its log
        self._connections = frozenset(name for _, name in sockets()) - before

    def give_up(self, reason: Exception) -> None:
        """Wait no longer for the group that is in the making, if there is one."""
        if (making := self._making) is not None:
            making.put(reason)

    def abort(self, errored: bool = True) -> None:
        """Leave the group. Nothing is exchanged before the next ``configure``; one that runs is not stopped.

        The group itself ends with its last exchange. Of several that run at once one may not see that its connections
        are cut, and be given up at its timeout only (Gloo in torch 2.14): nobody is to wait for that here.
        """
        for number, name in sockets():
            if name in self._connections:
                cut(number)
        group = [self._pg]
        super().abort(errored)
        if group != [None]:
            threading.Thread(target=group.clear, name="group-end", daemon=True).start()

    def _wrap_work(self, work: Any, opts: object) -> Any:
        return Waited(work, self._waits)


def _make(maker: Any, making: queue.SimpleQueue[Any], where: tuple[Any, ...], options: dict[str, Any]) -> None:
    try:
        maker.configure(*where, **options)
        making.put(maker._pg)
    except Exception as error:
        making.put(error)


class Waited(Work):  # type: ignore[misc]
    """An exchange, whose wait is told."""

    def __init__(self, work: Any, waits: Waits) -> None:
        super().__init__()
        self._work = work
        self._waits = waits

    def wait(self, timeout: timedelta | None = None) -> bool:
        with self._waits.for_peers(exchange=True):
            return bool(self._work.wait() if timeout is None else self._work.wait(timeout))

    def get_future(self) -> Any:
        return self._work.get_future()


def sockets() -> Iterator[tuple[int, str]]:
    """The sockets that are open in this process: number, and a name that no other socket has."""
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{number}")
            if name.startswith("socket:"):
                yield int(number), name


def cut(number: int) -> None:
    """End the connection of a socket, if it has one; one that listens stays as it is."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as held:
        held.getpeername()
        held.shutdown(socket.SHUT_RDWR)
