"""Who reaches whom among the members of a job: trainers are asked, and who is cut off from most is known.

Only a way that was open before counts as cut: where knocks never arrive, because a policy forbids them perhaps, their
failing tells nothing. Not here: how one knocks (``doors``), when it is asked, and what follows (``controller``).
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from training import announce, doors
from training.lives import Life, Line

TIMEOUT_S = doors.KNOCKING_S + 0.5
PEERS_MAX = 16

Way = frozenset[str]
"""Between two members, by their names."""


class Paths:
    """The ways between the members."""

    def __init__(self) -> None:
        self._open: set[Way] = set()
        self._asked: dict[int, asyncio.Future[announce.Tried]] = {}
        self._numbers = itertools.count()

    async def cut_from(self, name: str, line: Line, lives: Sequence[Life]) -> set[str] | None:
        """Those of these that this trainer does not reach, though it did, or was reached; of many, some are tried.

        None when it does not answer in time.
        """
        tried = await self._tried(name, line, lives)
        return None if tried is None else {other for way in self._cut(tried) for other in way if other != name}

    async def apart(self, members: Mapping[str, tuple[Line, Life]]) -> list[str]:
        """Few of these, without whom all the rest reach each other: first those to whom most ways are cut."""
        async with asyncio.TaskGroup() as tasks:
            tries = [
                tasks.create_task(self._tried(name, line, [life for _, life in members.values() if life is not own]))
                for name, (line, own) in members.items()
            ]
        cut = self._cut(found for one in tries for found in one.result() or ())
        gone: list[str] = []
        while cut:
            counts = Counter(name for way in cut for name in way)
            gone.append(max(counts, key=lambda name: (counts[name], name)))
            cut = {way for way in cut if gone[-1] not in way}
        return gone

    def _cut(self, tried: Iterable[tuple[Way, bool]]) -> set[Way]:
        """Note which ways are open; those that were and are not, tried from either side."""
        ways = {True: set[Way](), False: set[Way]()}
        for way, is_open in tried:
            ways[is_open].add(way)
        self._open |= ways[True]
        return ways[False] & self._open - ways[True]

    async def _tried(self, name: str, line: Line, lives: Sequence[Life]) -> list[tuple[Way, bool]] | None:
        """Each way from one trainer, and whether it is open."""
        lives = random.sample(lives, min(len(lives), PEERS_MAX))
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        line.send(announce.Try(number=number, doors=[life.hello.doors for life in lives]))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reached = (await answer).reached
        except TimeoutError:
            return None
        finally:
            del self._asked[number]
        return [(frozenset((name, life.key[0])), arrived) for life, arrived in zip(lives, reached, strict=False)]

    def answered(self, tried: announce.Tried) -> None:
        """What a trainer says; it may be too late, or what nobody asked."""
        answer = self._asked.get(tried.number)
        if answer is not None and not answer.done():
            answer.set_result(tried)
