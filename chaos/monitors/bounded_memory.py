"""`bounded_memory`: training does not eat the machine's memory."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from msgspec import Meta

from chaos.api import (
    AnyEvent,
    Finding,
    History,
    Limits,
    Monitor,
    Outcome,
    Plan,
    Stretch,
    counted,
    events,
)

MB = 1e6
_PARTS = 6
_SAMPLES_MAX = 600


class BoundedMemoryLimits(Limits, frozen=True):
    """Thresholds of `bounded_memory`."""

    growth_mb_per_1000_steps_max: Annotated[float, Meta(gt=0)] = 100.0
    """Growth of a trainer's resident memory. A host with 1 TB to spare for 8 trainers lasts a million steps of it."""
    warmup_steps: Annotated[int, Meta(ge=0)] = 100
    """Steps of a life that are left out: caches fill, allocators grow."""
    steps_min: Annotated[int, Meta(ge=_PARTS)] = 300
    """Steps of a life after that without which nothing is said of it."""


@dataclass(slots=True)
class _Usage:
    """One life's memory, by its own steps; every `stride`-th is kept, so that long lives cost no more than short."""

    member: str
    due: int
    """The step whose memory is kept next."""
    steps: int = 0
    stride: int = 1
    first_seq: int = -1
    last_seq: int = -1
    kept: list[int] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)
    """What the steps that are kept told."""
    stretch: Stretch | None = None
    """The one that its newest commit began."""

    def go_on(self) -> None:
        """Take in what the ordinary commits since the newest one told."""
        if self.stretch is None:
            return
        commits, first, end = self.stretch.commits, self.stretch.place + 1, self.stretch.place + len(self.stretch)
        told = commits.rss_bytes[first:end]
        seqs = [seq for seq, rss in zip(commits.seqs[first:end], told, strict=True) if rss is not None]
        self.take(seqs, [rss for rss in told if rss is not None])
        self.stretch = None

    def take(self, seqs: list[int], rss_bytes: list[int]) -> None:
        """Take in steps in a row, and keep those that are due."""
        next_step = self.steps + 1
        self.steps += len(seqs)
        while self.due <= self.steps:
            due = range(self.due, self.steps + 1, self.stride)[: _SAMPLES_MAX - len(self.kept)]
            first, last = due[0] - next_step, due[-1] - next_step
            self.first_seq, self.last_seq = self.first_seq if self.kept else seqs[first], seqs[last]
            self.kept.extend(due)
            self.rss_bytes.extend(rss_bytes[first : last + 1 : self.stride])
            if len(self.kept) >= _SAMPLES_MAX:
                self.stride *= 2
                stay = [step % self.stride == 0 for step in self.kept]
                self.kept = list(itertools.compress(self.kept, stay))
                self.rss_bytes = list(itertools.compress(self.rss_bytes, stay))
            self.due = (due[-1] // self.stride + 1) * self.stride

    def growth_mb_per_1000_steps(self) -> float:
        """The median rise from one sixth of the life to the next: neither spikes nor one jump can make it."""
        size = len(self.kept) / _PARTS
        parts = [slice(round(index * size), round((index + 1) * size)) for index in range(_PARTS)]
        middles = [(statistics.median(self.kept[part]), statistics.median(self.rss_bytes[part])) for part in parts]
        rises = [(rss - before) / (n - since) for (since, before), (n, rss) in itertools.pairwise(middles)]
        return float(statistics.median(rises)) / MB * 1000


class BoundedMemory(Monitor[BoundedMemoryLimits]):
    """The resident memory of a trainer does not grow with the steps that it trains.

    A leak of a fraction of a step's memory ends a long run by the kernel's hand, on all hosts at about the same time:
    the one failure that no number of replicas survives. For long runs; a short one leaves it UNKNOWN.
    """

    name: ClassVar[str] = "bounded_memory"
    safety: ClassVar[bool] = False
    watches: ClassVar[tuple[type[events.Event], ...]] = (events.TrainerStarted, events.Step)
    ordinary: ClassVar[bool] = False
    limits: ClassVar[type[Limits]] = BoundedMemoryLimits

    def __init__(self, plan: Plan, limits: BoundedMemoryLimits) -> None:
        super().__init__(plan, limits)
        self._lives: dict[tuple[str, int], _Usage] = {}
        self._past_lives: list[_Usage] = []

    def observe(self, event: AnyEvent, history: History) -> None:
        life = (event.member, event.incarnation)
        usage = self._lives.get(life)
        if not isinstance(event, events.Step):
            if usage is not None:
                self._past_lives.append(self._lives.pop(life))
            return
        if event.t_s >= history.past.drain_s:
            return
        if usage is None:
            usage = self._lives[life] = _Usage(event.member, due=self.limit.warmup_steps + 1)
        usage.go_on()
        usage.stretch = history.past.open.get(event.member)
        if event.rss_bytes is not None:
            usage.take([event.seq], [event.rss_bytes])

    def conclude(self, history: History) -> Finding:
        needed = self.limit.warmup_steps + self.limit.steps_min
        lives = [*self._past_lives, *self._lives.values()]
        for life in lives:
            life.go_on()
        judged = [life for life in lives if life.steps >= needed]
        worst = max(judged, key=_Usage.growth_mb_per_1000_steps, default=None)
        growth = worst.growth_mb_per_1000_steps() if worst else None
        measures: dict[str, float | int | str | None] = {
            "lives_judged": len(judged),
            "growth_mb_per_1000_steps": growth,
            "largest_mb": max((max(life.rss_bytes) for life in lives if life.kept), default=0) / MB or None,
        }
        if worst is None or growth is None:
            longest = max((life.steps for life in lives), default=0)
            reading = f"no life reported its memory for {needed} steps, the longest for {longest}"
            return self.finding(Outcome.UNKNOWN, reading, measures)
        said = f"{worst.member} grew by {growth:.0f} MB per 1000 steps"
        evidence = (worst.first_seq, worst.last_seq)
        if growth > self.limit.growth_mb_per_1000_steps_max:
            reading = f"the memory of {said} (at most {self.limit.growth_mb_per_1000_steps_max:g})"
            return self.finding(Outcome.FAIL, reading, measures, evidence)
        if missing := history.past.missing(()):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        reading = f"of {counted(len(judged), 'long life', 'long lives')} the memory of {said}, the most"
        return self.finding(Outcome.PASS, reading, measures, evidence)
