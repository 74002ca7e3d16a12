"""The recorder: the one way into a run's journal, and the place to wait for what it says.

Every event is written first, then judged, then shown; whoever waits for a condition looks again after each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

from chaos.check import Judges
from chaos.journal import Journal
from chaos.model.events import AnyEvent, Event, SafetyBroken
from chaos.model.history import History
from chaos.model.ports import Watcher

RUNNER = "runner"


class Recorder:
    """Writes, judges and shows events; used in the event loop's thread only."""

    def __init__(self, journal: Journal, judges: Judges, watchers: tuple[Watcher, ...]) -> None:
        self._journal = journal
        self._judges = judges
        self._watchers = list(watchers)
        self._changed = anyio.Event()
        self.broken = anyio.Event()
        """Set once a safety monitor spoke."""

    @property
    def history(self) -> History:
        return self._judges.history

    def emit(self, event: Event) -> None:
        """Take an event in. JournalBroken when it cannot be written."""
        numbered = self._journal.record(event)
        self._judges.observe(numbered)
        for watcher in tuple(self._watchers):
            watcher(numbered, self.history)
        finding = self._judges.broken()
        if finding is not None and not self.broken.is_set():
            self.broken.set()
            self.emit(SafetyBroken(t_s=event.t_s, member=RUNNER, monitor=finding.monitor, reading=finding.reading))
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, condition: Callable[[History], bool]) -> None:
        """Wait until the history meets the condition."""
        while not condition(self.history):
            await self._changed.wait()

    @contextmanager
    def watching(self, watcher: Watcher) -> Iterator[None]:
        """Show every event to one more watcher for as long as the context is open."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    async def next(self, wanted: Callable[[AnyEvent], bool]) -> AnyEvent:
        """Wait for the next event that is wanted."""
        seen: list[AnyEvent] = []

        def look(event: AnyEvent, history: History) -> None:
            if wanted(event):
                seen.append(event)

        with self.watching(look):
            await self.until(lambda history: bool(seen))
        return seen[0]
