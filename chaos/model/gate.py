"""A gate: the runs of a suite counted together, and what they show of each objective. The content of `gate.json`.

It is written anew after every run, so a gate that was interrupted can be read, and gone on with.
"""

from __future__ import annotations

import msgspec

from chaos.model.verdict import Outcome

RECORD = "gate.json"
VERSION = 1


class GateRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run, as a gate counts it. `folder` is its name inside the gate's folder.

    `outcome` is FAIL for a job that broke and UNKNOWN for a run that proved nothing; a known bug that shows as expected
    is a PASS. `unsafe` are safety monitors that failed though nobody expected it. `measures` are named
    `monitor.measure`.
    """

    folder: str
    seed: int
    outcome: Outcome
    duration_s: float
    reasons: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()
    monitors: dict[str, Outcome] = {}
    measures: dict[str, float] = {}


class Reading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the runs show of one objective. UNKNOWN: too little to say.

    `decided`: further runs cannot change it. `seen` runs gave a value, of those wanted; `value` is the estimate, and
    `bound` what it is at worst with the gate's confidence, if the runs can tell; `limit` is what was asked for.
    """

    objective: str
    outcome: Outcome
    decided: bool
    reading: str
    seen: int
    value: float | None = None
    bound: float | None = None
    limit: float | None = None


class GateExperiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One experiment of the suite. `version` changes with what is done to the job and how it is judged; `job` is what
    the job under test is.
    """

    name: str
    why: str
    version: str
    job: str
    runs_wanted: int
    runs: tuple[GateRun, ...] = ()
    readings: tuple[Reading, ...] = ()


class Gate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole gate. `outcome` is UNKNOWN while too little is known; `reason` says what decided, in a sentence.

    `complete`: it ended by itself, decided or not. `suite` is a fingerprint of what was asked; `stack` names versions,
    `machine` what the numbers were measured on. `baseline` is the file compared with, `notes` what to bear in mind.
    """

    name: str
    why: str
    suite: str
    outcome: Outcome
    complete: bool
    reason: str
    confidence: float
    began_wall_s: float
    spent_s: float
    stack: dict[str, str]
    machine: dict[str, str]
    experiments: tuple[GateExperiment, ...]
    baseline: str | None = None
    notes: tuple[str, ...] = ()
    version: int = VERSION
