"""Whether the main thread of a trainer works, waits for its peers, or does nothing, and since when.

Who does nothing while its peers wait for long is hung (``watch``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Waits:
    """Made and written by the main thread."""

    def __init__(self) -> None:
        self._state = (False, time.monotonic())
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._used_s = 0.0
        self._used_at_s = 0.0
        self.exchanging = False
        self.before_exchange: Callable[[], None] = lambda: None
        """Called when ``exchanging`` says so already, and before the thread waits."""
        self.step_s = 0.0
        """What the last step took that was committed."""

    @contextmanager
    def for_peers(self, exchange: bool = False) -> Iterator[None]:
        """Within this the thread waits for a quorum or an exchange."""
        self._state, self.exchanging = (True, time.monotonic()), exchange
        try:
            if exchange:
                self.before_exchange()
            yield
        finally:
            self._state, self.exchanging = (False, time.monotonic()), False

    def now(self) -> tuple[bool, float]:
        """Whether it waits for peers, and for how many seconds; or for how many it has done nothing although it does
        not: one that is slow uses its processor. For one thread, which asks again and again.
        """
        waits, since_s = self._state
        used_s, now_s = time.clock_gettime(self._clock), time.monotonic()
        if used_s > self._used_s:
            self._used_s, self._used_at_s = used_s, now_s
        return waits, now_s - (since_s if waits else max(since_s, self._used_at_s))
