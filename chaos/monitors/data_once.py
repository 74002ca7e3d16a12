"""`data_once`: no batch of the data is trained on twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from chaos.api import AnyEvent, Finding, History, Limits, Monitor, Outcome, Past, Plan, Stretch, counted, events


@dataclass(slots=True)
class _Run:
    """Steps in a row that counted batches in a row: step `first` the batch `first + ahead`, and so on to `last`."""

    first: int
    last: int
    ahead: int

    def holds(self, step: int, batch: int) -> bool:
        return batch - step == self.ahead and self.first <= step <= self.last

    def denies(self, step: int, batch: int) -> bool:
        """Whether it counted this batch under another step, or another batch under this step."""
        if batch - step == self.ahead:
            return False
        return self.first <= step <= self.last or self.first <= batch - self.ahead <= self.last


@dataclass(slots=True)
class _Shard:
    """What was counted of one member's shard, over all its lives."""

    runs: list[_Run] = field(default_factory=list)
    step: int = 0
    """The highest step that counted a batch."""
    newest: int = 0
    """The highest number of a batch that was counted."""
    counted: int = 0
    stretch: Stretch | None = None
    """The one that the newest commit began."""

    def go_on(self) -> None:
        """Take in what the ordinary commits since the newest one counted: one batch after the other."""
        if self.stretch is not None and (more := len(self.stretch) - 1):
            self.step = self.runs[-1].last = self.runs[-1].last + more
            self.newest += more
            self.counted += more
        self.stretch = None

    def count(self, step: int, batch: int) -> _Run | None:
        """Take a commit in; the run of earlier ones that it contradicts, if any."""
        if self.runs and step == self.step + 1 and batch == self.newest + 1:
            run = self.runs[-1]
            if run.last == self.step and run.ahead == batch - step:  # As almost always.
                run.last = self.step = step
                self.newest = batch
                self.counted += 1
                return None
        # Of new highest numbers no earlier run can know.
        earlier = [] if step > self.step and batch > self.newest else self.runs
        denied = next((run for run in earlier if run.denies(step, batch)), None)
        if any(run.holds(step, batch) for run in earlier):
            return denied
        self.runs.append(_Run(step, step, batch - step))
        self.counted += denied is None
        self.step, self.newest = max(self.step, step), max(self.newest, batch)
        return denied


class DataOnce(Monitor[Limits]):
    """Each batch of a member's shard is counted in one step at most, over all its lives, and each step has one batch.

    A replica that comes back and reads its data from the beginning trains twice on what it had seen: nothing crashes,
    the loss looks a little too good, and the model remembers what it should have learnt from. Batches that a shard
    never contributed because its replica was away or healing are measured as lost; that is the price of going on.
    """

    name: ClassVar[str] = "data_once"
    safety: ClassVar[bool] = True
    watches: ClassVar[tuple[type[events.Event], ...]] = (events.Step,)
    ordinary: ClassVar[bool] = False

    def __init__(self, plan: Plan, limits: Limits) -> None:
        super().__init__(plan, limits)
        self._shards: dict[str, _Shard] = {}
        self._untold = 0
        self._twice = 0
        self._evidence: list[int] = []
        self._said = ""

    def observe(self, event: AnyEvent, history: History) -> None:
        assert isinstance(event, events.Step)
        if not event.committed or event.healing or event.t_s >= history.past.drain_s:
            return
        if event.batch is None:
            self._untold += 1
            return
        shard = self._shards.get(event.member)
        if shard is None:
            shard = self._shards[event.member] = _Shard()
        shard.go_on()
        denied = shard.count(event.step, event.batch)
        shard.stretch = history.past.life_of(event).stretches[-1]
        if denied is None:
            return
        self._twice += 1
        if self.broken is None:
            self._said = _said(event, event.batch, denied)
            before = event.step if denied.first <= event.step <= denied.last else event.batch - denied.ahead
            self._evidence = [*_commits(event.member, before, history.past), event.seq]
            self.broken = self.finding(Outcome.FAIL, self._said, evidence=self._evidence)

    def conclude(self, history: History) -> Finding:
        for shard in self._shards.values():
            shard.go_on()
        told = sum(shard.counted for shard in self._shards.values())
        frontier = max(history.past.steps.tallies, default=0)
        lost = sum(self._lost(replica, frontier) for replica in self.plan.replicas())
        measures: dict[str, float | int | str | None] = {
            "batches_counted": told,
            "batches_twice": self._twice,
            "batches_lost": lost,
        }
        if self._twice:
            reading = f"{self._said} ({counted(self._twice, 'such commit')})"
            return self.finding(Outcome.FAIL, reading, measures, self._evidence)
        if missing := history.past.missing(self.plan.replicas()):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        if not told:
            return self.finding(Outcome.UNKNOWN, "no committed step told its batch", measures)
        if self._untold:
            return self.finding(Outcome.UNKNOWN, f"{counted(self._untold, 'commit')} told of no batch", measures)
        reading = f"{counted(told, 'batch', 'batches')} counted, each once; {lost} lost with replicas that were away"
        return self.finding(Outcome.PASS, reading, measures)

    def _lost(self, replica: str, frontier: int) -> int:
        """Steps of the job that counted no batch of a replica; the end of the run may cut off its word on the last."""
        shard = self._shards.get(replica) or _Shard()
        steps = shard.step if shard.step + 1 >= frontier else frontier
        return max(0, steps - shard.counted)


def _commits(member: str, step: int, past: Past) -> list[int]:
    """Journal positions of a member's first commit of a step."""
    return [commit.seq for commit in past.steps.commits(step) if commit.member == member][:1]


def _said(event: events.Step, batch: int, denied: _Run) -> str:
    if denied.first <= event.step <= denied.last:
        other = event.step + denied.ahead
        return f"{event.member} committed step {event.step} with batch {batch}, and before with batch {other}"
    return f"{event.member} counted batch {batch} in step {event.step}, and before in step {batch - denied.ahead}"
