"""When a member that ended is started again, like the pod of a StatefulSet. Pure: no clock, no process."""

from __future__ import annotations

from chaos.model.topology import Restart

LIFE_SHORT_S = 10.0
BACKOFF_FIRST_S = 0.5
BACKOFF_S_MAX = 10.0
SHORT_LIVES_MAX = 10


class Restarts:
    """One member's history of short lives.

    The first death costs no wait, nor does any after a life of LIFE_SHORT_S or more. Each further short life doubles
    the wait, from BACKOFF_FIRST_S to BACKOFF_S_MAX; after SHORT_LIVES_MAX in a row the member is given up.
    """

    def __init__(self, policy: Restart) -> None:
        self._policy = policy
        self._short_lives = 0

    def after(self, lived_s: float, deleted: bool) -> float | None:
        """Seconds until the next life; None for never. A deleted member did not fail: its next life starts at once."""
        if self._policy is Restart.NEVER:
            return None
        if deleted:
            return 0.0
        if lived_s >= LIFE_SHORT_S:
            self._short_lives = 0
        self._short_lives += 1
        if self._short_lives == 1:
            return 0.0
        if self._short_lives > SHORT_LIVES_MAX:
            return None
        return min(float(BACKOFF_FIRST_S * 2 ** (self._short_lives - 2)), BACKOFF_S_MAX)
