"""Stores runs as golden journals: `python -m tests.golden.record RUN...`, with the folders that `chaos run` printed.

A run takes the place of the one that was recorded of its experiment before, on the same platform. Only a run that is
judged PASS now is taken. Of a path of this machine the last part stays.
"""

from __future__ import annotations

import lzma
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from chaos.check import PLAN
from chaos.journal import NAME, Reading
from chaos.model.errors import BadInput
from chaos.model.events import RunStarted
from chaos.model.plan import Plan
from chaos.model.verdict import Outcome
from tests.golden.recorded import JOURNALS, PACKED, Recorded

PACKED_BYTES_MAX = 60_000

_MACHINE_PATH = re.compile(r"(?:/[\w.@+-]+)+(/[\w.@+-]+)")


def scrubbed(value: Any) -> Any:
    """The value with every path in it cut down to its last part."""
    match value:
        case str():
            return _MACHINE_PATH.sub(r"\1", value)
        case dict():
            return {key: scrubbed(inner) for key, inner in value.items()}
        case list():
            return [scrubbed(inner) for inner in value]
        case _:
            return value


def record(run_dir: Path) -> Path:
    """Store one run and give back its folder. BadInput when it is no run, did not pass, or is too large."""
    reading = Reading(run_dir / NAME)
    try:
        plan_json, lines = (run_dir / PLAN).read_bytes(), (run_dir / NAME).read_bytes().splitlines()
        plan = msgspec.json.decode(plan_json, type=Plan)
        run = Recorded(plan.experiment.name, plan, tuple(reading.events()), tuple(reading.flaws)).of_today()
    except OSError as error:
        raise BadInput(f"{run_dir} is not the folder of a run: {error.filename}: {error.strerror}") from None
    verdict = run.verdict()
    if verdict.outcome is not Outcome.PASS:
        raise BadInput(f"{run_dir} is {verdict.outcome.value}: {'; '.join(verdict.reasons)}; record one that passes")
    packed = _packed([scrubbed(msgspec.json.decode(line)) for line in lines])
    if len(packed) > PACKED_BYTES_MAX:
        raise BadInput(f"{run_dir} packs to {len(packed)} bytes, at most {PACKED_BYTES_MAX}; record a shorter run")
    folder = JOURNALS / _name(run)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PLAN).write_bytes(msgspec.json.format(msgspec.json.encode(scrubbed(msgspec.json.decode(plan_json)))))
    (folder / PACKED).write_bytes(packed)
    return folder


def _name(run: Recorded) -> str:
    """That of its experiment, behind the platform if that is not the local one."""
    begun = run.events[0]
    assert isinstance(begun, RunStarted)
    return run.name if begun.platform == "local" else f"{begun.platform}-{run.name}"


def _packed(lines: list[Any]) -> bytes:
    return lzma.compress(b"".join(msgspec.json.encode(line) + b"\n" for line in lines), preset=9 | lzma.PRESET_EXTREME)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        try:
            print(record(Path(argument)))
        except BadInput as error:
            sys.exit(f"record: {error}")
