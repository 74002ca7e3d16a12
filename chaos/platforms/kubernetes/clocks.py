"""Times as they stand in a Lease, and how far the clocks of nodes are from ours."""

from __future__ import annotations

import time
from collections import deque
from datetime import datetime

WAY_S = 1.0
"""What a heartbeat may take on a busy cluster."""
SAMPLES = 16
"""Heartbeats that count: clocks drift, and are set."""


def micro_time(ahead_s: float = 0.0) -> str:
    """The wall clock now, of one that is so far ahead."""
    now_s = time.time() + ahead_s
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s % 1 * 1e6):06}Z"


def age_s(renew_time: str) -> float:
    """Seconds since then by our wall clock."""
    return time.time() - datetime.fromisoformat(renew_time).timestamp()


def between_s(earlier: str, later: str) -> float:
    """Seconds between two times of one clock."""
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


class Skews:
    """How far the wall clock of each node is ahead of ours, from its agent's heartbeats as they come.

    One that comes late makes the node's clock seem behind, never ahead; so the most that was seen counts, and it is
    too little by the shortest time that a heartbeat took. A clock that seems behind by no more than that is taken for
    right: most are kept so, to milliseconds.
    """

    def __init__(self) -> None:
        self._seen: dict[str, deque[float]] = {}
        self._last: dict[str, str] = {}

    def heard(self, node: str, renew_time: str) -> None:
        """A heartbeat, now. The first may be as old as it likes: only a change tells when it was made."""
        last, self._last[node] = self._last.get(node), renew_time
        if last not in (None, renew_time):
            self._seen.setdefault(node, deque(maxlen=SAMPLES)).append(-age_s(renew_time))

    def ahead_s(self, node: str) -> float:
        """0 where nothing is known yet."""
        seen_s = max(self._seen.get(node, (0.0,)))
        return 0.0 if -WAY_S < seen_s < 0 else seen_s
