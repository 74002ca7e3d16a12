"""`bounded_memory`: training does not eat the machine's memory."""

from __future__ import annotations

import itertools
import statistics
from typing import Annotated, ClassVar

from msgspec import Meta

from chaos.api import (
    Finding,
    History,
    Life,
    Limits,
    Monitor,
    Outcome,
    counted,
)

MB = 1e6
_PARTS = 6
_SAMPLES = 600


class BoundedMemoryLimits(Limits, frozen=True):
    """Thresholds of `bounded_memory`."""

    growth_mb_per_1000_steps_max: Annotated[float, Meta(gt=0)] = 100.0
    """Growth of a trainer's resident memory. A host with 1 TB to spare for 8 trainers lasts a million steps of it."""
    warmup_steps: Annotated[int, Meta(ge=0)] = 100
    """Steps of a life that are left out: caches fill, allocators grow."""
    steps_min: Annotated[int, Meta(ge=_PARTS)] = 300
    """Steps of a life after that without which nothing is said of it."""


class _Usage:
    """One life's memory, by its own steps behind the warm-up; of a long one only some steps are looked at."""

    def __init__(self, life: Life, warmup_steps: int) -> None:
        self.member = life.member
        rss_bytes = life.commits.rss_bytes
        told_always = all(rss_bytes) or None not in rss_bytes  # The one is quicker, and as a rule true.
        places = range(len(rss_bytes)) if told_always else [n for n, rss in enumerate(rss_bytes) if rss]
        self.steps = len(places)
        self._stride = max(1, (self.steps - warmup_steps) // _SAMPLES)
        looked_at = places[warmup_steps :: self._stride]
        self.evidence = [life.commits.seqs[place] for place in (*looked_at[:1], *looked_at[-1:])]
        self.rss_bytes = [rss for place in looked_at if (rss := rss_bytes[place])]

    def growth_mb_per_1000_steps(self) -> float:
        """The median rise from one sixth of the life to the next: neither spikes nor one jump can make it."""
        size = len(self.rss_bytes) / _PARTS
        parts = [slice(round(index * size), round((index + 1) * size)) for index in range(_PARTS)]
        middles = [((part.start + part.stop) / 2, statistics.median(self.rss_bytes[part])) for part in parts]
        rises = [(rss - before) / (place - since) for (since, before), (place, rss) in itertools.pairwise(middles)]
        return statistics.median(rises) / self._stride / MB * 1000


class BoundedMemory(Monitor[BoundedMemoryLimits]):
    """The resident memory of a trainer does not grow with the steps that it trains.

    A leak of a fraction of a step's memory ends a long run by the kernel's hand, on all hosts at about the same time:
    the one failure that no number of replicas survives. For long runs; a short one leaves it UNKNOWN.
    """

    name: ClassVar[str] = "bounded_memory"
    safety: ClassVar[bool] = False
    limits: ClassVar[type[Limits]] = BoundedMemoryLimits

    def conclude(self, history: History) -> Finding:
        needed = self.limit.warmup_steps + self.limit.steps_min
        lives = [
            _Usage(life, self.limit.warmup_steps)
            for replica in self.plan.replicas()
            for life in history.past.lives.get(replica, [])
        ]
        judged = [life for life in lives if life.steps >= needed]
        worst = max(judged, key=_Usage.growth_mb_per_1000_steps, default=None)
        growth = worst.growth_mb_per_1000_steps() if worst else None
        measures: dict[str, float | int | str | None] = {
            "lives_judged": len(judged),
            "growth_mb_per_1000_steps": growth,
            "largest_mb": max((max(life.rss_bytes) for life in lives if life.rss_bytes), default=0) / MB or None,
        }
        if worst is None or growth is None:
            longest = max((life.steps for life in lives), default=0)
            reading = f"no life reported its memory for {needed} steps, the longest for {longest}"
            return self.finding(Outcome.UNKNOWN, reading, measures)
        said = f"{worst.member} grew by {growth:.0f} MB per 1000 steps"
        if growth > self.limit.growth_mb_per_1000_steps_max:
            reading = f"the memory of {said} (at most {self.limit.growth_mb_per_1000_steps_max:g})"
            return self.finding(Outcome.FAIL, reading, measures, worst.evidence)
        if missing := history.past.missing(()):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        reading = f"of {counted(len(judged), 'long life', 'long lives')} the memory of {said}, the most"
        return self.finding(Outcome.PASS, reading, measures, worst.evidence)
