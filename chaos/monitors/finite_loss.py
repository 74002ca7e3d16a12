"""`finite_loss`: no update is made of what is not a number."""

from __future__ import annotations

from math import isfinite
from typing import ClassVar

from chaos.api import AnyEvent, Finding, History, Limits, Monitor, Outcome, Plan, counted, events


class FiniteLoss(Monitor[Limits]):
    """Every committed step has a loss and a gradient norm that are finite numbers.

    One NaN in one gradient is in every weight of every replica as soon as that update is committed, and in all that
    follow. The replicas stay equal, so nothing that compares them can tell; the run is lost from that step on.
    JSON has no NaN: a trainer that reported numbers before and reports none for a committed step had one.
    """

    name: ClassVar[str] = "finite_loss"
    safety: ClassVar[bool] = True
    watches = (events.Step,)
    ordinary: ClassVar[bool] = False

    def __init__(self, plan: Plan, limits: Limits) -> None:
        super().__init__(plan, limits)
        self._reporting: dict[str, set[str]] = {"loss": set(), "gradient norm": set()}
        """The members that have reported a number of each."""
        self._bad: list[tuple[events.Step, str]] = []

    def observe(self, event: AnyEvent, history: History) -> None:
        if not isinstance(event, events.Step) or not event.committed or event.t_s >= history.past.drain_s:
            return
        for what, value in (("loss", event.loss), ("gradient norm", event.grad_norm)):
            reporting = self._reporting[what]
            if value is not None and isfinite(value):
                reporting.add(event.member)
            elif value is not None or event.member in reporting:
                self._bad.append((event, what))
        if self._bad and self.broken is None:
            self.broken = self.finding(Outcome.FAIL, self._said(), evidence=[self._bad[0][0].seq])

    def conclude(self, history: History) -> Finding:
        checked = sum(tally.commits for tally in history.past.steps.tallies.values())
        measures: dict[str, float | int | str | None] = {
            "commits_checked": checked,
            "commits_bad": len({step.seq for step, _ in self._bad}),
        }
        if self._bad:
            return self.finding(Outcome.FAIL, self._said(), measures, [step.seq for step, _ in self._bad[:3]])
        if missing := history.past.missing(self.plan.replicas()):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        if not any(self._reporting.values()):
            return self.finding(Outcome.UNKNOWN, "no loss of a committed step was reported", measures)
        reading = f"loss and gradient norm were finite in each of {counted(checked, 'commit')}"
        return self.finding(Outcome.PASS, reading, measures)

    def _said(self) -> str:
        step, what = self._bad[0]
        return f"{step.member} committed step {step.step} with a {what} that is not a finite number"
