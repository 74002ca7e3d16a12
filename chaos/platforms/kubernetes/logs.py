"""Follows the log of one pod through the lives of its container.

The log API hands out what the container wrote, with the time of each line as its node has it. A stream that breaks is
taken up again from the last lines' time, and what was seen before is dropped; by the line itself, since lines of
standard output and error may lie in the log a little out of their order in time. A life whose log was gone before it
could be read is told as lost. When the container has ended, the rest of its log is read before its end is told. A
container that is started again may be heard before the pod's status tells so: its lines wait for that.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import anyio

from chaos.platforms.kubernetes.client import Kube, KubeError, Object
from chaos.platforms.kubernetes.entry import ENTERED
from chaos.platforms.kubernetes.lives import Life

REST_TRIES = 10
RETRY_S = 0.2
STATUS_S = 3.0
"""For a pod's status to tell what the end of its log's stream may mean."""
GONE_TAIL_S = 10.0
"""How long the stream of a pod that was deleted by force may go on: its container lives a little longer."""
SIGNALLED = 128
BEGINS = f'{{"kind": "{ENTERED}"'.encode()
"""The first words of a life."""

_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\S* ")

Take = Callable[[bytes], None]
"""Takes a line of the log, without its time."""


class _Seen:
    """The lines of the last two seconds in which there were any: with those a stream begins that is taken up again."""

    def __init__(self) -> None:
        self._lines: dict[bytes, set[bytes]] = {}

    @property
    def since(self) -> bytes:
        """The second from which to read on; empty for the beginning."""
        return min(self._lines, default=b"")

    def __contains__(self, line: bytes) -> bool:
        return any(line in lines for lines in self._lines.values())

    def add(self, second: bytes, line: bytes) -> None:
        self._lines.setdefault(second, set()).add(line)
        if len(self._lines) > 2:
            del self._lines[self.since]


class PodLog:
    """One pod. `ended` is called when a life of its container is over and read, with the exit status and the reading of
    CLOCK_MONOTONIC when that was learnt; `lost` with the reason when a life could not be read.
    """

    def __init__(
        self, kube: Kube, path: str, take: Take, ended: Callable[[int, float], None], lost: Callable[[str], None]
    ) -> None:
        self._kube = kube
        self._path = path
        self._take = take
        self._ended = ended
        self._lost = lost
        self._status: Object = {}
        self._gone = False
        self._killed: set[int] = set()
        self._changed = anyio.Event()
        self._seen = _Seen()
        self._number = 0
        self._heard = False
        """Whether the present life has said that it began."""
        self._over_mono_s: float | None = None
        self._whole = False
        self._unread = False

    def update(self, pod: Object) -> None:
        """The pod as it is now."""
        self._status = next(iter(pod["status"].get("containerStatuses", [])), {})
        self._wake()

    def gone(self) -> None:
        """The pod is no object of the API any more. Its container may live on for a while."""
        self._gone = True
        self._wake()

    async def killed(self, unread: bool = False) -> None:
        """Its node has seen every process of the container's present life gone: read the rest and tell its end.

        `unread`: the log cannot be had now; the rest is read when the next life begins.
        """
        self._unread = unread
        number = self._number
        self._killed.add(number)
        self._wake()
        while self._number == number:
            await self._changed.wait()

    async def run(self) -> None:
        """Until the pod is gone, one life of its container after another."""
        while True:
            await self._until(lambda: self._gone or self._begun())
            if not self._begun():
                return
            if self._unread:
                self._unread = False
                with suppress(KubeError):
                    await self._stream(previous="true")
            await self._read()
            self._ended(self._exit_status(), self._over_mono_s or time.monotonic())
            self._number += 1
            self._heard = False
            self._over_mono_s = None
            self._wake()

    async def _read(self) -> None:
        """One life's log, to its end."""
        self._whole = False
        while not self._over():
            await self._follow()
            with anyio.move_on_after(STATUS_S):  # Broken off; or over, of which the pod's status is about to tell.
                await self._until(lambda: self._over() or self._gone)
        for _ in range(REST_TRIES):
            if not self._whole and not self._gone and not self._unread:
                with suppress(KubeError):
                    await self._rest()
                await anyio.sleep(0 if self._whole else RETRY_S)
        if not self._whole and not self._gone and not self._unread:
            self._lost(f"the rest of an ended life's log could not be read in {REST_TRIES} tries")
        if self._restarts() > self._number + 1:
            self._lost(f"{self._restarts() - self._number - 1} lives ended before their logs could be read")
            self._number = self._restarts() - 1

    async def _follow(self) -> None:
        """Until the stream ends, or the container has and the rest is read.

        A stream goes on for some seconds after its container's end; the rest is read apart, if the pod is there yet.
        """

        async def end_when_over() -> None:
            await self._until(lambda: self._over() or self._gone)
            if self._over() and not self._unread:
                with suppress(KubeError):
                    await self._rest()
                    tasks.cancel_scope.cancel()
            await anyio.sleep(0 if self._unread else GONE_TAIL_S)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end_when_over)
            with suppress(KubeError):
                await self._stream(follow="true")
            tasks.cancel_scope.cancel()
        if self._gone:
            self._killed.add(self._number)  # No object and no stream: its node has no such container any more.

    async def _rest(self) -> None:
        self._whole = await self._stream(previous=str(self._restarts() > self._number).lower())

    async def _stream(self, **query: object) -> bool:
        """Take the lines that are new; False when those of another life come."""
        since = {"sinceTime": f"{self._seen.since.decode()}Z"} if self._seen.since else {}
        async with self._kube.lines(self._path, timestamps="true", **since, **query) as lines:
            async for several in lines:
                for line in several:
                    if not self._take_new(line):
                        return False
        return True

    def _take_new(self, line: bytes) -> bool:
        match = _TIME.match(line)
        if match is None:
            return True
        if line not in self._seen:
            begins = line.startswith(BEGINS, match.end())
            if begins and self._heard:
                return False
            self._heard = self._heard or begins
            self._seen.add(match[1], line)
            self._take(line[match.end() :])
        return True

    def _restarts(self) -> int:
        return int(self._status.get("restartCount", 0))

    def _begun(self) -> bool:
        state = self._status.get("state", {})
        return self._restarts() > self._number or (
            self._restarts() == self._number and ("running" in state or "terminated" in state)
        )

    def _over(self) -> bool:
        ended = self._restarts() == self._number and "terminated" in self._status.get("state", {})
        return self._restarts() > self._number or ended or self._number in self._killed

    def _exit_status(self) -> int:
        """As a process's parent sees it: minus the signal that ended it. A life whose end nobody saw was killed."""
        if self._restarts() > self._number:
            state = self._status.get("lastState", {}).get("terminated", {})
        else:
            state = self._status.get("state", {}).get("terminated", {})
        code = int(state.get("exitCode", SIGNALLED + signal.SIGKILL))
        return SIGNALLED - code if code > SIGNALLED else code

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def _wake(self) -> None:
        if self._over_mono_s is None and self._over():
            self._over_mono_s = time.monotonic()
        self._changed.set()
        self._changed = anyio.Event()


@dataclass
class Pod:
    """One pod of a member."""

    log: PodLog
    member: str
    name: str
    uid: str
    node: str
    since_s: float
    life: Life | None = None
    replaced: bool = False
