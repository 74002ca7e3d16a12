"""Recorded runs: plans and journals of real jobs, as `tests/golden/record.py` stored them.

    run = recorded.load("replica-lost")
    run.plan, run.events

Only what was judged PASS when it was recorded is kept. What is not here: the members' logs, and paths of the machine.
"""

from __future__ import annotations

import functools
import lzma
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from chaos.check import PLAN, Judges, digest
from chaos.journal import NAME
from chaos.model.events import AnyEvent, RunStarted
from chaos.model.plan import Plan
from chaos.model.verdict import Verdict

JOURNALS = Path(__file__).parent / "journals"
PACKED = f"{NAME}.xz"

_decode_event = msgspec.json.Decoder(AnyEvent).decode


@dataclass(frozen=True)
class Recorded:
    """One run: its name, its plan, the events of its journal, and what is wrong with the journal's lines."""

    name: str
    plan: Plan
    events: tuple[AnyEvent, ...]
    flaws: tuple[str, ...] = ()

    @functools.cached_property
    def judges(self) -> set[str]:
        """The monitors that judge it: those of its experiment, and those that sit in every run."""
        return {monitor.name for monitor in Judges(self.plan).monitors}

    def of_today(self) -> Recorded:
        """The run with the digest that this version takes of its plan: every field that plans gain changes it."""
        first, *others = self.events
        assert isinstance(first, RunStarted)
        return replace(self, events=(msgspec.structs.replace(first, plan=digest(self.plan)), *others))

    def verdict(self) -> Verdict:
        judges = Judges(self.plan)
        for event in self.events:
            judges.observe(event)
        return judges.verdict(self.flaws)


def names() -> list[str]:
    return sorted(folder.name for folder in JOURNALS.iterdir() if (folder / PACKED).is_file())


@functools.cache
def load(name: str) -> Recorded:
    """A recorded run."""
    folder = JOURNALS / name
    plan = msgspec.json.decode((folder / PLAN).read_bytes(), type=Plan)
    events = map(_decode_event, lzma.decompress((folder / PACKED).read_bytes()).splitlines())
    return Recorded(name, plan, tuple(events)).of_today()


def lay_out(run: Recorded, folder: Path) -> Path:
    """The run as the folder that `chaos run` would have left, for commands that read one."""
    folder.mkdir(parents=True)
    (folder / PLAN).write_bytes(msgspec.json.encode(run.plan))
    (folder / NAME).write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in run.events))
    return folder
