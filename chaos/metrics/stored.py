"""The metrics of what is stored: of the folder of a run, from its plan and journal alone, or of a gate and its runs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from chaos.check import PLAN, check
from chaos.files import write_whole
from chaos.journal import NAME, Reading
from chaos.metrics.fold import Metrics
from chaos.model.errors import BadInput
from chaos.model.gate import RECORD, Gate
from chaos.model.history import History
from chaos.model.plan import Plan


def take(folder: Path, metrics: Metrics) -> None:
    """Take a stored run or gate in. Raises BadInput when the folder holds none."""
    if not (folder / RECORD).is_file():
        _take_run(folder, metrics)
        return
    try:
        gate = msgspec.json.decode((folder / RECORD).read_bytes(), type=Gate)
    except msgspec.MsgspecError as misfit:
        raise BadInput(f"{folder / RECORD} cannot be read: {misfit}") from None
    for run in sorted((run for experiment in gate.experiments for run in experiment.runs), key=lambda run: run.folder):
        _take_run(folder / run.folder, metrics)
    metrics.gated(gate)


def _take_run(run_dir: Path, metrics: Metrics) -> None:
    verdict = check(run_dir)
    plan = msgspec.json.decode((run_dir / PLAN).read_bytes(), type=Plan)
    history = History(plan.topology)
    see = metrics.begin(plan, run_dir.resolve().name)
    for event in Reading(run_dir / NAME).events():
        history.apply(event)
        see(event, history)
    metrics.judged(plan, verdict)


def write(metrics: Metrics, to: Path) -> None:
    """Write the file; a textfile collector may read it at any time. Raises BadInput."""
    try:
        write_whole(to, metrics.text().encode())
    except OSError as error:
        raise BadInput(f"--to {to} cannot be written: {error.strerror}; type a file that you may write") from None
