"""When the Leases of runs were seen renewed, by this machine's own clock. No I/O.

The runner's stamps in a Lease are compared with each other only: they tell a renewal that was made late from one that
came late.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from chaos.agent.leases import REVERT_S
from chaos.platforms.kubernetes.clocks import between_s
from chaos.platforms.kubernetes.objects import LEASE_TTL_S


@dataclass(frozen=True)
class Renewal:
    """When it was seen here, and when it was made by the runner's clock; `late` says how it missed the time to live."""

    seen_mono_s: float
    made: str
    late: str = ""


class Renewals(dict[str, Renewal]):
    """Run -> the last renewal of its Lease."""

    def seen(self, run: str, made: str) -> None:
        """One more, now."""
        before, now_s = self.get(run), time.monotonic()
        late = "" if before is None else _late(now_s - before.seen_mono_s, between_s(before.made, made))
        self[run] = Renewal(now_s, made, late or (before.late if before else ""))

    def alive(self, run: str) -> bool:
        """Whether the run's Lease was seen renewed within its time to live."""
        return run in self and time.monotonic() - self[run].seen_mono_s < LEASE_TTL_S


def _late(passed_s: float, of_runner_s: float) -> str:
    if passed_s < LEASE_TTL_S - REVERT_S:
        return ""
    return (
        f"the run's Lease, which holds for {LEASE_TTL_S:g} s, was seen renewed after {passed_s:.1f} s, "
        f"and made so after {of_runner_s:.1f} s"
    )
