"""What lies in a folder of runs: the runs and gates in it, the newest first, and how each experiment fared lately.

Made for a quick look at many: of a run its verdict and the ends of its journal are read, nothing is judged.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import msgspec

from chaos.check import PLAN, VERDICT
from chaos.journal import NAME as JOURNAL
from chaos.model.gate import RECORD, Gate
from chaos.model.verdict import Outcome, Verdict

RUNS_MAX = 500
GATES_MAX = 100
TREND_MAX = 24
TAIL_BYTES = 64 * 1024
"""More than the longest line of a journal."""
_STAMP = re.compile(r"\d{8}-\d{6}-")


class _Mark(msgspec.Struct):
    """Of a journal's first or last event, what is asked for here."""

    kind: str
    t_s: float
    wall_s: float | None = None


@dataclass(frozen=True)
class Run:
    """A run. `folder` is its path in the folder of runs; `outcome` is None while it has no verdict."""

    folder: str
    experiment: str
    outcome: Outcome | None
    began_wall_s: float | None
    length_s: float | None
    recovery_s: float | None
    reason: str


@dataclass(frozen=True)
class Point:
    """A run or a gate among the last of its name; `at` is where it is told of."""

    at: str
    word: str
    took_s: float
    began_wall_s: float | None


@dataclass(frozen=True)
class Listing:
    """`left_out` are runs and gates that were too many."""

    runs: list[Run]
    gates: list[tuple[str, Gate]]
    left_out: int

    def trends(self) -> dict[str, list[Point]]:
        """The last runs of each experiment and the last of each gate, the oldest first."""
        told: dict[str, list[Point]] = defaultdict(list)
        for folder, gate in self.gates:
            told[f"gate {gate.name}"].append(Point(f"/{folder}/", gate.outcome.value, gate.spent_s, gate.began_wall_s))
        for run in sorted(self.runs, key=lambda run: run.experiment):
            word = run.outcome.value if run.outcome else "none"
            told[run.experiment].append(Point(f"/{run.folder}/", word, run.length_s or 0.0, run.began_wall_s))
        return {name: points[:TREND_MAX][::-1] for name, points in told.items()}


def read(root: Path) -> Listing:
    """What is there now. What cannot be read is shown as a run without a verdict."""
    gates, runs = [], []
    for folder in _folders(root):
        if (folder / RECORD).is_file():
            gates.append(folder)
            runs += [inner for inner in _folders(folder) if (inner / PLAN).is_file()]
        elif (folder / PLAN).is_file():
            runs.append(folder)
    runs.sort(key=lambda folder: folder.name, reverse=True)
    gates.sort(key=lambda folder: folder.name, reverse=True)
    left_out = max(0, len(runs) - RUNS_MAX) + max(0, len(gates) - GATES_MAX)
    told = [(str(folder.relative_to(root)), gate) for folder in gates[:GATES_MAX] if (gate := gate_in(folder))]
    return Listing([_run(folder, root) for folder in runs[:RUNS_MAX]], told, left_out)


def gate_in(folder: Path) -> Gate | None:
    """The gate whose folder it is, None when it is none that can be read."""
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=Gate)
    except (OSError, msgspec.MsgspecError):
        return None


def _folders(root: Path) -> list[Path]:
    with os.scandir(root) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _run(folder: Path, root: Path) -> Run:
    verdict = _verdict(folder)
    first, last = _ends(folder / JOURNAL)
    rejoin = next((one for one in verdict.findings if one.monitor == "replicas_rejoin"), None) if verdict else None
    recovery_s = rejoin.measures.get("recovery_s") if rejoin else None
    return Run(
        folder=str(folder.relative_to(root)),
        experiment=verdict.experiment if verdict else _STAMP.sub("", folder.name),
        outcome=verdict.outcome if verdict else None,
        began_wall_s=first.wall_s if first else None,
        length_s=last.t_s if last else None,
        recovery_s=recovery_s if isinstance(recovery_s, float | int) else None,
        reason=_reason(verdict, last),
    )


def _reason(verdict: Verdict | None, last: _Mark | None) -> str:
    if verdict is None:
        return "goes on, or was cut off" if last is None or last.kind != "run_ended" else "not judged yet"
    if verdict.expectation is not None:
        return verdict.expectation.reading
    failed = [f"{one.monitor}: {one.reading}" for one in verdict.findings if one.outcome is Outcome.FAIL]
    return next(iter((*failed, *verdict.reasons)), "")


def _verdict(folder: Path) -> Verdict | None:
    try:
        return msgspec.json.decode((folder / VERDICT).read_bytes(), type=Verdict)
    except (OSError, msgspec.MsgspecError):
        return None


def _ends(path: Path) -> tuple[_Mark | None, _Mark | None]:
    """The first and the last whole line of a journal."""
    try:
        with path.open("rb") as journal:
            first = journal.readline(TAIL_BYTES)
            journal.seek(max(0, path.stat().st_size - TAIL_BYTES))
            whole = journal.read().rpartition(b"\n")[0]
    except OSError:
        return None, None
    return _mark(first), _mark(whole.rpartition(b"\n")[2])


def _mark(line: bytes) -> _Mark | None:
    try:
        return msgspec.json.decode(line, type=_Mark)
    except msgspec.MsgspecError:
        return None
