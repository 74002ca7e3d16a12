"""`fault_reverted`: every fault was taken back."""

from __future__ import annotations

from typing import ClassVar

from chaos.api import (
    AnyEvent,
    Finding,
    Held,
    History,
    Injection,
    Limits,
    Monitor,
    Outcome,
    Past,
    Plan,
    counted,
    events,
    listed,
    span,
)

_SHARE_MIN = 0.9
"""The least part of its time that a fault has to be in force."""


class FaultReverted(Monitor[Limits]):
    """Everything that a fault held was read back as undone in its time, or ended with the life it was done to.

    A fault that stays behind, or ends early, is the fault of this tool and not of the job: what was seen since is no
    answer to the question asked, in either direction. So this is never FAIL, which is a word about the job, but
    UNKNOWN, which is no PASS either; and the reading says what may still be there.
    """

    name: ClassVar[str] = "fault_reverted"
    safety: ClassVar[bool] = False
    proves: ClassVar[bool] = True
    watches = (events.InjectionInForce, events.InjectionReverted, events.RevertFailed)

    def __init__(self, plan: Plan, limits: Limits) -> None:
        super().__init__(plan, limits)
        self._open: dict[tuple[str, Injection], events.InjectionInForce] = {}
        self._left: list[events.InjectionInForce] = []
        """Injections that were made once more before they were said to be undone."""
        self._reverted: list[events.InjectionReverted] = []
        self._failed: list[events.RevertFailed] = []
        self._elsewhere: list[events.InjectionReverted] = []
        """Ends that were read back from somebody else than the target."""
        self._early: list[tuple[events.InjectionReverted, float]] = []
        """Ends that came before their time, and how long the fault had been in force."""
        self._for_s = {one.id: one.for_s for one in plan.faults if one.for_s and not one.rhythm and not one.follow}

    def observe(self, event: AnyEvent, history: History) -> None:
        match event:
            case events.InjectionInForce(injection=Held()):
                if (earlier := self._open.get((event.fault_id, event.injection))) is not None:
                    self._left.append(earlier)
                self._open[event.fault_id, event.injection] = event
            case events.InjectionReverted():
                begun = self._open.pop((event.fault_id, event.injection), None)
                self._reverted.append(event)
                if event.proof.member != _target(event):
                    self._elsewhere.append(event)
                elif begun is not None and self._too_short(begun, event, history):
                    self._early.append((event, event.t_s - begun.t_s))
            case events.RevertFailed():
                self._open.pop((event.fault_id, event.injection), None)
                self._failed.append(event)
            case _:
                pass

    def conclude(self, history: History) -> Finding:
        past = history.past
        left = [*self._left, *self._open.values()]
        slowest_s = max((event.latency_s for event in self._reverted), default=None)
        measures: dict[str, float | int | str | None] = {
            "held": sum(isinstance(proof.injection, Held) for proof in past.in_force),
            "reverted": len(self._reverted),
            "latency_s": slowest_s,
        }
        doubts = [f"{_name(event, past)} was not taken back in order: {event.reason}" for event in self._failed]
        doubts += [f"{_name(proof, past)} was never said to be undone" for proof in left]
        doubts += [
            f"{_name(event, past)} was held on {_target(event)}, and {event.proof.member} was read back as free of it"
            for event in self._elsewhere
        ]
        doubts += ["`chaos clean` tells what is left on this machine"] if doubts else []
        doubts += [
            f"{_name(event, past)} was taken back after {span(held_s)} s of {self._for_s[event.fault_id]:g}"
            for event, held_s in self._early
        ]
        evidence = [event.seq for event in (*self._failed, *left, *self._reverted)]
        if doubts:
            reading = "; ".join(doubts)
            return self.finding(Outcome.UNKNOWN, reading, measures, evidence)
        if missing := past.missing(()):
            return self.finding(Outcome.UNKNOWN, missing, measures, evidence)
        if slowest_s is None:
            return self.finding(Outcome.PASS, "nothing was held", measures)
        undone = f"{counted(len(self._reverted), 'injection')} undone"
        reading = f"{undone}, the last proof {span(slowest_s * 1000)} ms after its time was up"
        return self.finding(Outcome.PASS, reading, measures, evidence)

    def _too_short(self, begun: events.InjectionInForce, end: events.InjectionReverted, history: History) -> bool:
        """Whether what was held ended before its time, though its target lived."""
        for_s = self._for_s.get(end.fault_id)
        if for_s is None or end.target_gone or history.over(_target(end), begun.proof.incarnation):
            return False
        return end.t_s - begun.t_s < for_s * _SHARE_MIN


def _target(event: events.InjectionReverted) -> str:
    return event.injection.target if isinstance(event.injection, Held) else event.injection.member


def _name(event: events.InjectionInForce | events.InjectionReverted | events.RevertFailed, past: Past) -> str:
    started = past.started.get(event.fault_id)
    said = f" ({started.fault} of {listed(started.targets)})" if started else ""
    return f"{event.fault_id}{said}"
