"""The course of a gate: run after run, each experiment in turn, until the outcome is decided or the time is up.

The record is written after each run. A run that was cut off is not counted; who goes on later makes it again.
"""

from __future__ import annotations

import enum
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from chaos.files import json_of, write_whole
from chaos.gate import judge
from chaos.gate.baseline import Baseline, differences
from chaos.gate.suite import Entry, Suite
from chaos.journal import JournalBroken
from chaos.model.errors import BadInput, MachineUnfit, near
from chaos.model.experiment import Experiment
from chaos.model.gate import RECORD, Gate, GateExperiment, GateRun
from chaos.model.ports import PlatformLost
from chaos.model.verdict import Outcome, Verdict
from chaos.model.wording import counted
from chaos.registry import monitors


class Ended(enum.Enum):
    """How a run went to its end."""

    DONE = "done"
    INTERRUPTED = "interrupted"
    OUT_OF_TIME = "out of time"


Execute = Callable[[Experiment, Path, float], tuple[Path, Verdict, Ended]]
"""Runs an experiment once, in a new folder inside the one given, for so many seconds at most."""


Say = Callable[[str], None]
_INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Orders:
    """How a gate is to go. `all_runs`: also those that cannot change its outcome, as a baseline wants them."""

    suite: Suite
    execute: Execute
    folder: Path
    budget_s: float
    baseline: Baseline | None = None
    all_runs: bool = False
    notes: tuple[str, ...] = ()
    say: Say = print
    seen: Callable[[Gate], None] = lambda gate: None
    """Is shown the gate after each run, and at its end."""


def begun(suite: Suite, stack: dict[str, str], machine: dict[str, str], baseline: Path | None) -> Gate:
    """A gate without any run."""
    experiments = tuple(
        GateExperiment(entry.name, entry.experiment.why, entry.version, entry.job, entry.runs)
        for entry in suite.entries
    )
    return Gate(
        name=suite.spec.name,
        why=suite.spec.why,
        suite=suite.fingerprint,
        outcome=Outcome.UNKNOWN,
        complete=False,
        reason="no run was made",
        confidence=suite.spec.confidence,
        began_wall_s=time.time(),
        spent_s=0.0,
        stack=stack,
        machine=machine,
        experiments=experiments,
        baseline=None if baseline is None else str(baseline),
    )


def stored(folder: Path) -> Gate:
    """The gate whose folder it is. Raises BadInput."""
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=Gate)
    except OSError as error:
        raise BadInput(
            f"{folder} is not the folder of a gate: {RECORD}: {error.strerror}; type the one that `chaos gate` printed"
        ) from None
    except msgspec.MsgspecError as misfit:
        raise BadInput(f"{folder / RECORD} cannot be read: {misfit}") from None


def check_resumable(before: Gate, now: Gate, folder: Path) -> None:
    """Runs that are counted together must be of one suite, one stack and one machine. Raises BadInput."""
    for what, was, is_now in (
        ("suite", before.suite, now.suite),
        ("stack", before.stack, now.stack),
        ("machine", before.machine, now.machine),
    ):
        if was != is_now:
            raise BadInput(
                f"{folder} cannot be gone on with: its {what} was {was}, now {is_now}; begin anew, without --resume"
            )


def go(gate: Gate, orders: Orders) -> Gate:
    """Make the runs that are missing, and judge. A gate that could not go on is not complete."""
    course = _Course(gate, orders)
    try:
        end, complete = course.run()
    except KeyboardInterrupt:  # Between two runs; one that goes on takes signals itself.
        end, complete = _INTERRUPTED, False
    except (MachineUnfit, PlatformLost, JournalBroken) as broken:
        end, complete = str(broken), False
    gate = _ended(course.gate, orders, end, complete)
    try:
        _keep(gate, orders)
    except MachineUnfit as unfit:  # Whoever waits for the outcome hears it all the same.
        orders.say(f"  {unfit}")
    return gate


class _Course:
    """The gate so far."""

    def __init__(self, gate: Gate, orders: Orders) -> None:
        self.gate = _judged(gate, orders)
        self._orders = orders
        self._began_mono_s = time.monotonic() - gate.spent_s
        self._until_mono_s = time.monotonic() + orders.budget_s

    def run(self) -> tuple[str, bool]:
        """Run after run; why it stopped before the outcome was decided, if it did, and whether it did by itself."""
        orders = self._orders
        used_up = f"the budget of {orders.budget_s:g} s is used up"
        while (entry := _next(self.gate, orders)) is not None:
            left_s = self._until_mono_s - time.monotonic()
            experiment = _experiment(self.gate, entry)
            if left_s <= _usual_s(experiment, orders):
                return used_up, True
            run, ended = _run(entry, experiment, orders, left_s)
            if ended is not Ended.DONE:
                return (_INTERRUPTED, False) if ended is Ended.INTERRUPTED else (used_up, True)
            spent = msgspec.structs.replace(self.gate, spent_s=time.monotonic() - self._began_mono_s)
            self.gate = _judged(_with(spent, entry, run), orders)
            _keep(self.gate, orders)
            _say_run(run, entry, self.gate, orders)
        return "", True


def _keep(gate: Gate, orders: Orders) -> None:
    save(gate, orders.folder)
    orders.seen(gate)


def save(gate: Gate, folder: Path) -> None:
    """Write the record: who reads it sees the one before or this one. Raises MachineUnfit."""
    try:
        write_whole(folder / RECORD, json_of(gate))
    except OSError as error:
        raise MachineUnfit(f"{folder / RECORD} cannot be written: {error.strerror}") from None


def _next(gate: Gate, orders: Orders) -> Entry | None:
    """The experiment to run next: of those that can still change the outcome, the one with the fewest runs."""
    if gate.outcome is Outcome.FAIL or len(_invalid(gate)) > orders.suite.spec.invalid_max:
        return None
    wanted = []
    for entry, one in zip(orders.suite.entries, gate.experiments, strict=True):
        made = len(_valid(one.runs))
        if made < entry.runs and (orders.all_runs or not all(reading.decided for reading in one.readings)):
            wanted.append((made, entry))
    return min(wanted, key=lambda pair: pair[0])[1] if wanted else None


def _run(entry: Entry, experiment: GateExperiment, orders: Orders, left_s: float) -> tuple[GateRun, Ended]:
    seed = entry.seed + len(_valid(experiment.runs))
    began_mono_s = time.monotonic()
    seeded = msgspec.structs.replace(entry.experiment, seed=seed)
    run_dir, verdict, ended = orders.execute(seeded, orders.folder, left_s)
    run = counted_run(run_dir.name, seed, verdict, time.monotonic() - began_mono_s)
    if ended is Ended.DONE:
        _check_measures(entry, verdict)
    return run, ended


def counted_run(folder: str, seed: int, verdict: Verdict, duration_s: float) -> GateRun:
    """A run's verdict as a gate counts it."""
    outcome = next(one for one in Outcome if one.exit_code == verdict.exit_code)
    expected = verdict.expectation is not None and verdict.expectation.met
    failed = [finding.monitor for finding in verdict.findings if finding.outcome is Outcome.FAIL]
    expectation = () if verdict.expectation is None or expected else (verdict.expectation.reading,)
    return GateRun(
        folder=folder,
        seed=seed,
        outcome=outcome,
        duration_s=duration_s,
        reasons=() if expected else (*expectation, *verdict.reasons),
        unsafe=() if expected else tuple(name for name in failed if monitors()[name].safety),
        monitors={finding.monitor: finding.outcome for finding in verdict.findings},
        measures={
            f"{finding.monitor}.{name}": float(value)
            for finding in verdict.findings
            for name, value in finding.measures.items()
            if isinstance(value, int | float)
        },
    )


def _check_measures(entry: Entry, verdict: Verdict) -> None:
    """A measure that its monitor does not know is a mistake in the suite, to be said after the first run."""
    findings = {finding.monitor: finding for finding in verdict.findings}
    for objective in entry.objectives:
        monitor, _, name = (objective.measure or "").partition(".")
        if monitor and findings[monitor].measures and name not in findings[monitor].measures:
            remedy = near(name, findings[monitor].measures)
            raise BadInput(f"{entry.name}: {monitor} tells no measure {name!r}; {remedy}")


def _judged(gate: Gate, orders: Orders) -> Gate:
    suite, baseline = orders.suite, orders.baseline
    experiments = tuple(
        msgspec.structs.replace(one, readings=judge.readings(entry, one.runs, suite, baseline))
        for entry, one in zip(suite.entries, gate.experiments, strict=True)
    )
    outcome, reason = judge.judged(experiments)
    return msgspec.structs.replace(gate, experiments=experiments, outcome=outcome, reason=reason)


def _ended(gate: Gate, orders: Orders, end: str, complete: bool) -> Gate:
    """The gate at the end of this call, with the reason why it went no further."""
    invalid = _invalid(gate)
    notes = orders.notes + (() if orders.baseline is None else differences(orders.baseline, gate))
    notes += tuple(f"a run of {name} proved nothing and was not counted: {run.reasons[0]}" for name, run in invalid)
    reason = gate.reason
    if gate.outcome is Outcome.UNKNOWN:
        if len(invalid) > orders.suite.spec.invalid_max:
            name, run = invalid[-1]
            end = f"{counted(len(invalid), 'run')} proved nothing, the last of {name}: {run.reasons[0]}"
        reason = f"{end}; {reason}" if end else f"not enough to tell: {reason}"
    return msgspec.structs.replace(gate, reason=reason, notes=notes, complete=complete)


def _with(gate: Gate, entry: Entry, run: GateRun) -> Gate:
    experiments = tuple(
        msgspec.structs.replace(one, runs=(*one.runs, run)) if one.name == entry.name else one
        for one in gate.experiments
    )
    return msgspec.structs.replace(gate, experiments=experiments)


def _experiment(gate: Gate, entry: Entry) -> GateExperiment:
    return next(one for one in gate.experiments if one.name == entry.name)


def _usual_s(experiment: GateExperiment, orders: Orders) -> float:
    """How long the next run will take, by those before it; 0 when nothing is known."""
    durations_s: Iterable[float] = [run.duration_s for run in experiment.runs]
    if not durations_s and orders.baseline is not None:
        durations_s = orders.baseline.experiments[experiment.name].durations_s
    return statistics.median(durations_s) if durations_s else 0.0


def _valid(runs: Iterable[GateRun]) -> list[GateRun]:
    return [run for run in runs if run.outcome is not Outcome.UNKNOWN]


def _invalid(gate: Gate) -> list[tuple[str, GateRun]]:
    return [(one.name, run) for one in gate.experiments for run in one.runs if run.outcome is Outcome.UNKNOWN]


def _say_run(run: GateRun, entry: Entry, gate: Gate, orders: Orders) -> None:
    made = len(_valid(_experiment(gate, entry).runs))
    why = f"  {run.reasons[0]}" if run.reasons else ""
    orders.say(
        f"{run.outcome.value:7}  {entry.name}, seed {run.seed}, {run.duration_s:.1f} s ({made} of {entry.runs}){why}"
    )
