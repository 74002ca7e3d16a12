"""A Gloo process group that can be left at any time: a wait in it ends at once, also for the peers, and for it.

Gloo waits for a peer that says nothing until its timeout, and has no abort. Here leaving cuts the connections of the
group in this process, so every wait on either end fails, and no late data can reach a tensor that is in use again.
Not here: NCCL, which aborts by itself, and who decides to leave (``healing``).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torchft
from torch.distributed import Work

from training.errands import Errand
from training.waits import Waits


class LeavableGloo(torchft.ProcessGroupGloo):  # type: ignore[misc]
    """TorchFT's group over Gloo, whose ``abort`` may be called from any thread. ``making``: of the next group."""

    def __init__(self, timeout: timedelta, waits: Waits) -> None:
        super().__init__(timeout)
        self._waits = waits
        self.making = Errand("group-making")

    _connections: frozenset[str] = frozenset()

    def configure(self, *where: Any, **options: Any) -> None:
        self.abort(errored=False)
        before = frozenset(name for _, name in sockets())
        maker = torchft.ProcessGroupGloo(self._timeout)
        self.making.run(lambda: maker.configure(*where, **options))
        self._pg = maker._pg
        self._replica_id, self._rank, self._quorum_id = maker._replica_id, maker._rank, maker._quorum_id  # for its log
        self._connections = frozenset(name for _, name in sockets()) - before

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
