"""The baseline: what the same experiments measured once, with which stack and on which machine.

One file of JSON, to be checked in beside the suite. It is refused for experiments that have changed since; another
stack, job or machine is no reason to refuse it, and is said.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from fractions import Fraction
from math import comb
from pathlib import Path

import msgspec

from chaos.files import json_of
from chaos.gate.suite import Entry, Suite
from chaos.model.errors import BadInput
from chaos.model.gate import Gate
from chaos.model.verdict import Outcome

LOAD_MAX = 1.5
"""Of each core."""


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One experiment's runs: `measures` has the numbers of each run, by `monitor.measure`."""

    version: str
    job: str
    durations_s: tuple[float, ...]
    measures: dict[str, tuple[float, ...]]


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    suite: str
    recorded: str
    stack: dict[str, str]
    machine: dict[str, str]
    experiments: dict[str, Measured]
    version: int = 1


def machine() -> dict[str, str]:
    """What times depend on, of the machine that the runner is on."""
    cpu = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024**3
    return {"cpu": cpu, "cores": str(len(os.sched_getaffinity(0))), "memory_gib": f"{memory_gib:.0f}"}


def busy() -> tuple[str, ...]:
    """A note when more wants to run on this machine than it can: then times tell of the others."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load <= LOAD_MAX * cores:
        return ()
    return (f"the machine was busy when the gate began (load {load:.1f} on {cores} cores): times may be the others'",)


def read(path: Path, suite: Suite, budget_s: float) -> Baseline:
    """The baseline, if the suite can be compared with it, and done in the time that its runs took. Raises BadInput."""
    record = f"record one with: chaos gate {suite.reference} --baseline {path} --update-baseline"
    try:
        baseline = msgspec.json.decode(path.read_bytes(), type=Baseline)
    except OSError as error:
        raise BadInput(f"the baseline {path}: {error.strerror}; {record}") from None
    except msgspec.MsgspecError as misfit:
        raise BadInput(f"the baseline {path} cannot be read: {misfit}; {record}") from None
    for entry in suite.entries:
        measured = baseline.experiments.get(entry.name)
        if measured is None:
            raise BadInput(f"the baseline {path} knows no experiment {entry.name!r}; {record}")
        if measured.version != entry.version:
            raise BadInput(
                f"the baseline {path} is of another version of {entry.name}: {measured.version}, now {entry.version}. "
                f"What is done to the job or how it is judged has changed; {record}"
            )
        _check_numbers(path, entry, measured, suite, record)
    _check_budget(suite, baseline, budget_s)
    return baseline


def write(path: Path, gate: Gate) -> Baseline:
    """Record the runs of a gate that passed."""
    assert gate.outcome is Outcome.PASS
    experiments = {}
    for one in gate.experiments:
        runs = [run for run in one.runs if run.outcome is not Outcome.UNKNOWN]
        names = sorted(set.intersection(*(set(run.measures) for run in runs)))
        measures = {name: tuple(run.measures[name] for run in runs) for name in names}
        experiments[one.name] = Measured(one.version, one.job, tuple(run.duration_s for run in runs), measures)
    recorded = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(gate.began_wall_s))
    baseline = Baseline(gate.name, recorded, gate.stack, gate.machine, experiments)
    path.write_bytes(json_of(baseline))
    return baseline


def differences(baseline: Baseline, gate: Gate) -> tuple[str, ...]:
    """What to bear in mind of a comparison; that of another machine comes first, for it may explain everything."""
    notes = []
    if other := _changes(baseline.machine, gate.machine):
        notes.append(f"the baseline was recorded on another machine ({other}): slower may mean the machine")
    if other := _changes(baseline.stack, gate.stack):
        notes.append(f"the baseline was recorded with another stack ({other})")
    for one in gate.experiments:
        if (was := baseline.experiments[one.name].job) != one.job:
            notes.append(f"the baseline of {one.name} was recorded with another job ({was}, now {one.job})")
    return tuple(notes)


def _changes(before: dict[str, str], now: dict[str, str]) -> str:
    names = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    return ", ".join(f"{name} {before.get(name, 'not told')}, now {now.get(name, 'not told')}" for name in names)


def _check_numbers(path: Path, entry: Entry, measured: Measured, suite: Suite, record: str) -> None:
    for objective in entry.objectives:
        if objective.worse_by_max is None or objective.measure is None:
            continue
        values = measured.measures.get(objective.measure, ())
        if Fraction(1, comb(len(values) + entry.runs, entry.runs)) > suite.risk_worse:
            raise BadInput(
                f"the baseline {path} has {len(values)} values of {objective.measure}, too few to compare "
                f"{entry.runs} runs of {entry.name} with at a confidence of {suite.spec.confidence:g}; {record}"
            )


def _check_budget(suite: Suite, baseline: Baseline, budget_s: float) -> None:
    usual_s = {entry.name: statistics.median(baseline.experiments[entry.name].durations_s) for entry in suite.entries}
    needed_s = sum(usual_s[entry.name] * entry.runs for entry in suite.entries)
    if needed_s > budget_s:
        each = ", ".join(f"{entry.runs} of {entry.name} at {usual_s[entry.name]:.0f} s" for entry in suite.entries)
        raise BadInput(
            f"the budget of {budget_s:g} s is too small: by the baseline the runs take {needed_s:.0f} s ({each}); "
            f"type --budget-s {needed_s * 1.2:.0f} or more"
        )
