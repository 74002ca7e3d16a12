"""`one_clock`: all who tell of the run mean the same by time."""

from __future__ import annotations

from typing import ClassVar

from chaos.api import AnyEvent, Commit, Finding, History, Limits, Monitor, Outcome, Plan, Seconds, Stretch, events, span

RUNNER = "runner"
FROM_PLATFORM = (events.MemberStarted, events.MemberExited, events.EventsLost)
"""Told of a member by those who keep it, so not in the order of its own words."""


class OneClockLimits(Limits, frozen=True):
    """Thresholds of `one_clock`."""

    apart_s_max: Seconds = 1.0
    """How far clocks may be seen to differ."""


class OneClock(Monitor[OneClockLimits]):
    """No event comes from the future, before the life that it is of, or before what the same member told earlier.

    Every gap and every recovery is a difference of two clocks. When they do not agree, a stall can look like a second
    and a second like a stall, so that nothing that is measured in seconds says anything about the job. It is never
    FAIL. A clock that is behind is not told from news that come late, as long as nothing is told before its cause.
    """

    name: ClassVar[str] = "one_clock"
    safety: ClassVar[bool] = False
    limits: ClassVar[type[Limits]] = OneClockLimits
    proves: ClassVar[bool] = True
    ordinary: ClassVar[bool] = False

    def __init__(self, plan: Plan, limits: OneClockLimits) -> None:
        super().__init__(plan, limits)
        self._newest: AnyEvent | Commit | None = None
        """The event with the highest time of those that are not the runner's."""
        self._compared_seq = -1
        """Up to where it has been found to differ from the runner's."""
        self._runner_s = 0.0
        self._told_s: dict[tuple[str, int], float] = {}
        """Life -> the highest time that it told of itself, or at which it began."""
        self._stretches: dict[str, tuple[int, Stretch]] = {}
        """Member -> incarnation and ordinary steps that it told since it was last shown here."""
        self._apart: list[tuple[str, float, tuple[int, ...]]] = []

    def observe(self, event: AnyEvent, history: History) -> None:
        if event.member == RUNNER:
            for _, stretch in self._stretches.values():
                self._hear_end(stretch)
            self._compare_runner(event)
            return
        if (told := self._stretches.pop(event.member, None)) is not None:
            incarnation, stretch = told
            self._hear_end(stretch)
            self._told_s[event.member, incarnation] = stretch.last_s
        if (begun := history.past.open.get(event.member)) is not None:
            self._stretches[event.member] = event.incarnation, begun
        self._hear(event)
        life = (event.member, event.incarnation)
        if isinstance(event, FROM_PLATFORM):
            if isinstance(event, events.MemberStarted):
                self._told_s[life] = event.t_s
            return
        told_s = self._told_s.get(life, event.t_s)
        if event.t_s >= told_s:
            self._told_s[life] = event.t_s
            return
        back_s = told_s - event.t_s
        if back_s > self.limit.apart_s_max:
            self._apart.append((f"the clock of {event.member} ran back by {span(back_s)} s", back_s, (event.seq,)))

    def _hear(self, event: AnyEvent | Commit) -> None:
        if event.seq > self._compared_seq and (self._newest is None or event.t_s > self._newest.t_s):
            self._newest = event

    def _hear_end(self, stretch: Stretch) -> None:
        if self._newest is None or stretch.last_s > self._newest.t_s:
            self._hear(stretch.end)

    def _compare_runner(self, event: AnyEvent) -> None:
        """The runner writes down what it does as it does it, so what stands before it in the journal has happened."""
        if isinstance(event, events.SafetyBroken):  # It bears the time of what broke it.
            return
        back_s = self._runner_s - event.t_s
        if back_s > self.limit.apart_s_max:
            self._apart.append((f"the runner's clock ran back by {span(back_s)} s", back_s, (event.seq,)))
        newest = self._newest
        if newest is not None and (ahead_s := newest.t_s - event.t_s) > self.limit.apart_s_max:
            said = f"the clock of {newest.member} is {span(ahead_s)} s ahead of the runner's"
            self._apart.append((said, ahead_s, (newest.seq, event.seq)))
            self._newest, self._compared_seq = None, event.seq
        self._runner_s = max(self._runner_s, event.t_s)

    def conclude(self, history: History) -> Finding:
        worst = max(self._apart, key=lambda one: one[1], default=None)
        measures: dict[str, float | int | str | None] = {
            "apart_s": worst[1] if worst else 0.0,
            "contradictions": len(self._apart),
        }
        if worst:
            limit = f"(at most {self.limit.apart_s_max:g})"
            return self.finding(Outcome.UNKNOWN, f"{worst[0]} {limit}", measures, worst[2])
        if missing := history.past.missing(()):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        return self.finding(Outcome.PASS, "no event contradicts the clock of another", measures)
