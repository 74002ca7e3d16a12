"""Whether the main thread of a trainer works or waits for its peers, and since when.

Who works while its peers wait for long is hung, or as good as that (``watch``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Waits:
    """Written by the main thread, read by any."""

    def __init__(self) -> None:
        self._state = (False, time.monotonic())
        self.step_s = 0.0
        """What the last step took that was committed."""

    @contextmanager
    def for_peers(self) -> Iterator[None]:
        """Within this the thread waits; what is inside of another changes nothing."""
        if self._state[0]:
            yield
            return
        self._state = (True, time.monotonic())
        try:
            yield
        finally:
            self._state = (False, time.monotonic())

    def now(self) -> tuple[bool, float]:
        """Whether it waits, and for how many seconds it has, or has not."""
        waits, since_s = self._state
        return waits, time.monotonic() - since_s
