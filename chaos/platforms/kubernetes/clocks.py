"""Times as they stand in a Lease."""

from __future__ import annotations

import time
from datetime import datetime


def micro_time() -> str:
    """The wall clock now."""
    now_s = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s % 1 * 1e6):06}Z"


def age_s(renew_time: str) -> float:
    """Seconds since then by our wall clock."""
    return time.time() - datetime.fromisoformat(renew_time).timestamp()
