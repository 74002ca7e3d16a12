"""Two runs side by side: what was different about them, what was found, and every number with its change.

    compare.show(compare.Comparison(record.read(one), record.read(other)), console)

It judges nothing: whether a difference is more than chance is told by a gate, which repeats runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.model.errors import BadInput
from chaos.model.verdict import Finding
from chaos.report.lanes import STATES
from chaos.report.page import environment, facts, parts_of
from chaos.report.record import Record
from chaos.report.summary import STYLES, number

SETTINGS_MAX = 40
TOLD_OF = ("replicas_rejoin", "survivors_continue", "goodput")
"""Their measures are what recovery is compared by; of the others only those that found something else are printed."""

Value = float | int | str | None


@dataclass(frozen=True)
class Pair:
    """One thing of both runs. `change` says by how much the second is more."""

    name: str
    a: str
    b: str
    change: str = ""

    @property
    def differs(self) -> bool:
        return self.a != self.b


@dataclass(frozen=True)
class Judged:
    """What one monitor found in both; None where it did not judge."""

    monitor: str
    a: Finding | None
    b: Finding | None

    @property
    def differs(self) -> bool:
        return (self.a and self.a.outcome) != (self.b and self.b.outcome)

    def measures(self) -> list[Pair]:
        names = dict.fromkeys([*(self.a.measures if self.a else ()), *(self.b.measures if self.b else ())])
        return [_pair(name, _of(self.a, name), _of(self.b, name)) for name in names]


@dataclass(frozen=True)
class Comparison:
    a: Record
    b: Record

    def whole(self) -> list[Pair]:
        """The runs as a whole."""
        pasts = self.a.history.past, self.b.history.past
        return [
            _pair("length_s", self.a.length_s, self.b.length_s),
            _pair("steps", *(len(past.steps) for past in pasts)),
            _pair("faults", *(len(past.started) for past in pasts)),
        ]

    def settings(self) -> list[Pair]:
        """What was different before the first event: of the experiment, the job, the platform and the software."""
        one, other = (dict(_flat(_asked(record))) for record in (self.a, self.b))
        names = [name for name in dict.fromkeys([*one, *other]) if one.get(name) != other.get(name)]
        return [Pair(name, one.get(name, "-"), other.get(name, "-")) for name in names[:SETTINGS_MAX]]

    def judged(self) -> list[Judged]:
        """What recovery is compared by first."""
        found = [{finding.monitor: finding for finding in record.verdict.findings} for record in (self.a, self.b)]
        names = dict.fromkeys([*TOLD_OF, *found[0], *found[1]])
        return [Judged(name, *(one.get(name) for one in found)) for name in names if any(name in one for one in found)]


def show(comparison: Comparison, console: Console) -> None:
    """The outcomes first, then what was different, then the numbers."""
    for letter, record in (("A", comparison.a), ("B", comparison.b)):
        outcome = record.verdict.outcome
        console.print(Text.assemble(f"{letter}  ", (f"{outcome.value:8}", STYLES[outcome]), record.verdict.experiment))
    _table(console, "what was different", comparison.settings())
    _table(console, "the whole", comparison.whole())
    for judged in comparison.judged():
        if judged.monitor in TOLD_OF or judged.differs:
            outcomes = [finding.outcome.value if finding else "-" for finding in (judged.a, judged.b)]
            _table(console, judged.monitor, [Pair("", *outcomes), *judged.measures()])


def render(comparison: Comparison) -> str:
    """The page."""
    length_s = max(comparison.a.length_s, comparison.b.length_s)
    sides = []
    for letter, record in (("A", comparison.a), ("B", comparison.b)):
        chart = record.watch.chart(record.history.past, length_s)
        sides.append((letter, record, chart, record.bars()[0], facts(record)))
    every = [bar for *_, bars, _ in sides for bar in bars]
    longest_s = max((bar.lasted_s for bar in every), default=0.0)
    return (
        environment()
        .get_template("compare.html")
        .render(
            comparison=comparison,
            sides=sides,
            states=STATES,
            parts=parts_of(every),
            longest_s=longest_s,
            told_of=TOLD_OF,
        )
    )


def write(comparison: Comparison, to: Path) -> None:
    """Write the page. Raises BadInput."""
    try:
        to.write_text(render(comparison))
    except OSError as error:
        raise BadInput(f"--html {to} cannot be written: {error.strerror}; type a file that you may write") from None


def _table(console: Console, title: str, pairs: list[Pair]) -> None:
    if not pairs:
        return
    table = Table(box=None, pad_edge=False, header_style="dim", title=Text(f"\n{title}", "bold"), title_justify="left")
    for column in ("", "A", "B", "change"):
        table.add_column(column, justify="left" if not column else "right", overflow="fold")
    for pair in pairs:
        table.add_row(*(Text(cell) for cell in (f"  {pair.name}", pair.a, pair.b, pair.change)))
    console.print(table)


def _asked(record: Record) -> dict[str, Any]:
    plan, begun = record.plan, record.begun
    asked: dict[str, Any] = msgspec.to_builtins(plan.experiment)  # Its keys are those that `--set` takes.
    asked["victims"] = {fault.id: ", ".join(fault.targets) for fault in plan.faults}
    if begun:
        asked |= {"platform": begun.platform, "isolation": begun.isolation, "version": begun.versions}
    return asked


def _flat(data: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """`a.b.0` for what stands in `{a: {b: [...]}}`."""
    if isinstance(data, dict | list | tuple):
        told = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in told:
            yield from _flat(value, f"{name}.{key}" if name else str(key))
    else:
        yield name, "not given" if data is None else str(data)


def _of(finding: Finding | None, name: str) -> Value:
    return finding.measures.get(name) if finding else None


def _pair(name: str, a: Value, b: Value) -> Pair:
    return Pair(name, "-" if a is None else number(a), "-" if b is None else number(b), _change(a, b))


def _change(a: Value, b: Value) -> str:
    """By how much, as a share where there is something to compare with."""
    if not isinstance(a, float | int) or not isinstance(b, float | int) or a == b or not isfinite(a + b):
        return ""
    return f"{(b - a) / abs(a):+.0%}" if abs(a) > 1e-9 else f"{b - a:+.3g}"
