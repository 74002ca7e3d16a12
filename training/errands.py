"""Waits that can be given up: the work is done by a thread, which is left to itself when nobody waits for it any more.

For calls into libraries that end at their own timeouts only, long after it is known that they will fail.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


class Errand:
    """What is waited for, one thing at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._end: queue.SimpleQueue[tuple[Any, Exception | None]] | None = None
        self.begun: Callable[[], None] = lambda: None
        """Called when one is under way, and may be given up."""

    def run(self, work: Callable[[], Result]) -> Result:
        """What the work gives or raises, or the reason for which it was given up."""
        end = self._end = queue.SimpleQueue()

        def do() -> None:
            try:
                end.put((work(), None))
            except Exception as error:
                end.put((None, error))

        threading.Thread(target=do, name=self._name, daemon=True).start()
        self.begun()
        result: Result
        result, error = end.get()
        self._end = None
        if error is not None:
            raise error
        return result

    def give_up(self, reason: Exception) -> None:
        """Wait no longer for what is under way, if anything is. From any thread."""
        if (end := self._end) is not None:
            end.put((None, reason))
