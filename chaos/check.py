"""Judges a run: folds its journal through the plan's monitors into a verdict.

The same judges sit beside a live run and read a stored journal, so both say the same. Nothing of the platform is
needed; `chaos check` works long after it is gone.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import msgspec

from chaos import journal
from chaos.api import Monitor
from chaos.load import convert
from chaos.model.errors import BadInput, near
from chaos.model.events import AnyEvent, RunStarted, Step
from chaos.model.experiment import Expect
from chaos.model.history import History
from chaos.model.plan import Plan
from chaos.model.verdict import Expectation, Finding, Outcome, Verdict
from chaos.model.wording import listed
from chaos.registry import monitors

PLAN = "plan.json"
VERDICT = "verdict.json"
PHASES = ("deploy", "baseline", "disturb", "quiesce", "drain")


class Judges:
    """The monitors of one plan over one history. `stored` is the digest of a plan that was read from a file."""

    def __init__(self, plan: Plan, stored: str | None = None) -> None:
        self.plan = plan
        self._digest = stored or digest(plan)
        self.history = History(plan.topology)
        self.monitors: list[Monitor[Any]] = []
        chosen = {name: None for name, kind in monitors().items() if kind.proves} | plan.experiment.monitors
        for name, limits in chosen.items():
            kind = monitors().get(name)
            if kind is None:
                raise BadInput(f"monitors: unknown monitor {name!r}; {near(name, monitors())}")
            self.monitors.append(kind(plan, convert(limits or {}, kind.limits, f"monitors.{name}")))
        self._second: RunStarted | None = None
        """The begin of another run in the same journal."""
        watching = [monitor for monitor in self.monitors if type(monitor).observe is not Monitor.observe]
        self._observers = {
            kind: [monitor.observe for monitor in watching if issubclass(kind, monitor.watches)]
            for kind in get_args(AnyEvent)
        }
        self._of_ordinary = [one.observe for one in watching if one.ordinary and issubclass(Step, one.watches)]

    def observe(self, event: AnyEvent) -> None:
        """Take one event in."""
        self.observe_all((event,))

    def observe_all(self, events: Sequence[AnyEvent]) -> None:
        """Take events in, in journal order."""
        if self._of_ordinary and len(events) > 1:  # Their monitors look at the history as it is at each step.
            for event in events:
                self.observe(event)
            return
        place = 0
        while True:
            begun, place = place, self.history.go_on(events, place)
            for observe in self._of_ordinary if place > begun else ():
                observe(events[begun], self.history)
            if place == len(events):
                return
            self._observe(events[place])
            place += 1

    def _observe(self, event: AnyEvent) -> None:
        history = self.history
        if isinstance(event, RunStarted) and history.past.begun is not None:
            self._second = self._second or event
        history.turn(event)
        for observe in self._observers[type(event)]:
            observe(event, history)

    def broken(self) -> Finding | None:
        """The first broken safety property, if any: a live run ends on it."""
        return next((m.broken for m in self.monitors if m.safety and m.broken is not None), None)

    def verdict(self, flaws: Iterable[str] = (), mixed: bool = False) -> Verdict:
        """The judgement; call it once, after the last event.

        `flaws` of the journal forbid a PASS. When it is `mixed`, what it seems to show may never have happened, so it
        forbids a FAIL as well.
        """
        findings = tuple(monitor.conclude(self.history) for monitor in self.monitors)
        past = self.history.past
        doubts = [f"the journal is flawed: {flaw}" for flaw in flaws]
        if past.begun is None:
            doubts.append("the journal does not begin with the run's start")
        elif past.begun.plan != self._digest:
            doubts.append("the plan is not the one that was run: plan.json was changed or exchanged")
        if past.ended is None:
            doubts.append("the journal has no end: the run was cut off")
        elif not past.ended.completed:
            doubts.append(f"the run was broken off: {past.ended.reason}")
        doubts += [f"the {failed.phase} phase failed: {failed.reason}" for failed in past.phases_failed]
        if self._second is not None:
            doubts.append(f"the journal holds more than one run: another one begins at event {self._second.seq}")
        left_out = [phase for phase in PHASES if phase not in past.phases]
        if past.completed and left_out and not past.phases_failed:
            doubts.append(f"the run left out {listed(left_out)}")
        outcome = Outcome.UNKNOWN if mixed else self._outcome(findings, doubts)
        expect = self.plan.experiment.expect
        return Verdict(
            outcome=outcome,
            experiment=self.plan.experiment.name,
            isolation=past.begun.isolation if past.begun else "",
            reasons=(*doubts, *(f"{f.monitor}: {f.reading}" for f in findings if f.outcome is not Outcome.PASS)),
            findings=findings,
            expectation=None if expect is None else _compared(expect, outcome, findings),
        )

    def _outcome(self, findings: tuple[Finding, ...], doubts: list[str]) -> Outcome:
        safety = {monitor.name for monitor in self.monitors if monitor.safety}
        if any(f.outcome is Outcome.FAIL and f.monitor in safety for f in findings):
            return Outcome.FAIL
        baseline_failed = any(failed.phase in ("deploy", "baseline") for failed in self.history.past.phases_failed)
        proofs = {monitor.name for monitor in self.monitors if monitor.proves}
        proven = all(f.outcome is Outcome.PASS for f in findings if f.monitor in proofs)
        if any(f.outcome is Outcome.FAIL for f in findings) and proven and not baseline_failed:
            return Outcome.FAIL
        if doubts or any(f.outcome is not Outcome.PASS for f in findings):
            return Outcome.UNKNOWN
        return Outcome.PASS


def _compared(expect: Expect, outcome: Outcome, findings: tuple[Finding, ...]) -> Expectation:
    """What a run says of the known bug that it is about."""
    spoke = [f.monitor for f in findings if f.monitor in expect.by and f.outcome is expect.outcome]
    ends = {Outcome.PASS: "passes", Outcome.FAIL: "fails", Outcome.UNKNOWN: "stays unknown"}
    if outcome is expect.outcome and spoke:
        return Expectation(True, f"{ends[outcome]} as expected ({', '.join(spoke)}): {expect.reference}")
    due = f"{expect.outcome.value} by {' or '.join(expect.by)} was expected"
    if outcome is Outcome.PASS:
        return Expectation(False, f"passes, though {due}: {expect.reference} is repaired or did not show this time")
    return Expectation(False, f"{ends[outcome]}, but not as expected: {due} ({expect.reference})")


def digest(plan: Plan) -> str:
    """A fingerprint of the plan, kept in the journal so that a verdict is about the plan that was run."""
    return digest_of(msgspec.to_builtins(plan))


def digest_of(data: Any) -> str:
    """Of the data as they stand, so that a later version with more keys knows the plan of an earlier one again."""
    return hashlib.sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()[:16]


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """What is kept of events points nowhere in circles, and there is much of it to search."""
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()


@_no_search_for_cycles()
def check(run_dir: Path) -> Verdict:
    """The verdict of a stored run from its plan and journal alone. Raises BadInput."""
    reading = journal.Reading(run_dir / journal.NAME)
    try:
        data = msgspec.json.decode((run_dir / PLAN).read_bytes())
        judges = Judges(msgspec.convert(data, Plan), digest_of(data))
        for events in reading.batches():
            judges.observe_all(events)
    except OSError as error:
        raise BadInput(
            f"{run_dir} is not the folder of a run: {error.filename}: {error.strerror}; "
            "type the folder that `chaos run` printed"
        ) from None
    except (msgspec.MsgspecError, RecursionError) as misfit:
        raise BadInput(f"{run_dir / PLAN} cannot be read: {misfit}") from None
    return judges.verdict(reading.flaws, reading.mixed)
