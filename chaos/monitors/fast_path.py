"""`fast_path`: gradients go over RDMA, not over TCP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from chaos.api import AnyEvent, Finding, History, Limits, Monitor, Outcome, Plan, counted, events, listed

MB = 1e6


class FastPathLimits(Limits, frozen=True):
    """Thresholds of `fast_path`."""

    ethernet_share_max: Annotated[float, Meta(ge=0, le=1)] = 0.2
    """Of the bytes of a window, those that may have gone by net devices: commands, stores and heartbeats do."""
    window_mb_min: Annotated[float, Meta(gt=0)] = 1.0
    """A window with fewer bytes on both paths carried no gradients."""


@dataclass(frozen=True)
class _Window:
    """What one replica moved between two looks, while it committed steps together with others."""

    since: events.BytesCarried
    until: events.BytesCarried
    first_step: int
    last_step: int

    @property
    def rdma_bytes(self) -> int:
        return (self.until.rdma_bytes or 0) - (self.since.rdma_bytes or 0)

    @property
    def ethernet_bytes(self) -> int:
        return self.until.ethernet_bytes - self.since.ethernet_bytes

    @property
    def ethernet_share(self) -> float:
        return self.ethernet_bytes / (self.rdma_bytes + self.ethernet_bytes)

    def __str__(self) -> str:
        steps = f"steps {self.first_step} to {self.last_step}"
        moved = f"{self.ethernet_bytes / MB:.1f} MB over TCP and {self.rdma_bytes / MB:.1f} MB over RDMA"
        return f"{self.until.name} moved {moved} in {steps}, from {self.since.t_s:.1f} s to {self.until.t_s:.1f} s"


class FastPath(Monitor[FastPathLimits]):
    """The gradients of a job that is to use RDMA go over RDMA, for every replica at all times.

    Collective libraries fall back to TCP without an error. The job goes on, every check is green, and a training run of
    forty minutes takes close to two hours. Windows in which somebody heals are left out: states may go by TCP.
    """

    name: ClassVar[str] = "fast_path"
    safety: ClassVar[bool] = False
    watches = (events.BytesCarried, events.HealStarted, events.HealEnded, events.HealServed)
    limits: ClassVar[type[Limits]] = FastPathLimits

    def __init__(self, plan: Plan, limits: FastPathLimits) -> None:
        super().__init__(plan, limits)
        self._replicas = set(plan.replicas())
        self._looks: dict[str, tuple[events.BytesCarried, int]] = {}
        """Replica -> the newest look at it, and its step then."""
        self._healed: set[str] = set()
        """Replicas that were not looked at since somebody healed."""
        self._judged: dict[str, int] = dict.fromkeys(sorted(self._replicas), 0)
        """Replica -> windows that were judged."""
        self._slow: list[_Window] = []
        self._uncounted: set[str] = set()
        self._rdma_bytes = self._ethernet_bytes = 0

    def observe(self, event: AnyEvent, history: History) -> None:
        if not isinstance(event, events.BytesCarried):
            self._healed |= self._replicas
        elif event.name in self._replicas:
            self._look(event, history)

    def _look(self, event: events.BytesCarried, history: History) -> None:
        member = history.members[event.name]
        before, self._looks[event.name] = self._looks.get(event.name), (event, member.state_step)
        healed = event.name in self._healed or bool(history.holders("healing"))
        self._healed.discard(event.name)
        if event.rdma_bytes is None:
            self._uncounted.add(event.name)
            return
        if before is None or before[0].member_incarnation != event.member_incarnation or before[0].rdma_bytes is None:
            return
        window = _Window(before[0], event, before[1] + 1, member.state_step)
        if window.rdma_bytes < 0 or window.ethernet_bytes < 0:
            return  # Whoever counts was started again, and began at nothing.
        self._rdma_bytes += window.rdma_bytes
        self._ethernet_bytes += window.ethernet_bytes
        enough = window.rdma_bytes + window.ethernet_bytes >= self.limit.window_mb_min * MB
        if healed or not enough or member.participants < 2 or window.last_step < window.first_step:
            return
        self._judged[event.name] += 1
        if window.ethernet_share > self.limit.ethernet_share_max:
            self._slow.append(window)

    def conclude(self, history: History) -> Finding:
        if self.plan.workload.gradients_over != "rdma":
            return self.finding(Outcome.UNKNOWN, "the job does not say that its gradients are to go over RDMA")
        windows = sum(self._judged.values())
        measures: dict[str, float | int | str | None] = {
            "windows": windows,
            "windows_over_tcp": len(self._slow),
            "rdma_mb": self._rdma_bytes / MB,
            "ethernet_mb": self._ethernet_bytes / MB,
        }
        if self._slow:
            first = self._slow[0]
            who = listed(sorted({window.until.name for window in self._slow}))
            reading = f"{first}; in {len(self._slow)} of {counted(windows, 'window')} gradients of {who} went over TCP"
            evidence = [seq for window in self._slow[:20] for seq in (window.since.seq, window.until.seq)]
            return self.finding(Outcome.FAIL, reading, measures, evidence)
        unseen = self._uncounted | {name for name, judged in self._judged.items() if not judged}
        if unseen:
            reading = f"no RDMA port of {listed(sorted(unseen))} told of bytes while it trained with others"
            return self.finding(Outcome.UNKNOWN, reading, measures)
        if missing := history.past.missing(self._replicas):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        reading = f"in {counted(windows, 'window')} gradients went over RDMA, {self._rdma_bytes / MB:.0f} MB"
        return self.finding(Outcome.PASS, reading, measures)
