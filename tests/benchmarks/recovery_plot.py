"""Draws what `recovery` measured: for each fault and profile how long survivors and victims took, by their phases.

    python -m tests.benchmarks.recovery_plot CSV [CSV ...] > recovery.svg

A bar is the trial in the middle with its phases, the tick the 95th percentile; trials that were not safe are left out.
Each fault has a scale of its own, for one profile may take a hundred times as long as another.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from pathlib import Path

from chaos.gate.bounds import percentile

PHASES = {
    "survivors": ("failed step", "new quorum", "next commit"),
    "victim": ("new trainer", "state loaded", "first commit"),
}
"""Who -> how long until each of these, one after the other."""
WIDTH, LABELS, BARS, ROW, BAR = 1080, 180, 660, 22, 14
STYLE = """
svg { --paper: #fff; --ink: #1b1f24; --faint: #59636e; --line: #d5dae0; background: var(--paper);
  font: 13px system-ui, "DejaVu Sans", sans-serif; fill: var(--ink);
  --p0: #d55e00; --p1: #7b8794; --p2: #009e73; --p3: #4a9fd8; --p4: #b4508a; --p5: #009e73; }
@media (prefers-color-scheme: dark) { svg { --paper: #14171b; --ink: #e6e9ed; --faint: #a3adb8; --line: #39414a; } }
.faint { fill: var(--faint); } .fault { font-weight: 700; } line { stroke: var(--line); }
.high { stroke: var(--ink); stroke-width: 2; }
"""
Row = dict[str, str]


@dataclass(frozen=True)
class Bar:
    """Seconds: when each phase of the trial in the middle was over, and what 95 % of the trials did not exceed."""

    who: str
    profile: str
    trials: int
    ends_s: tuple[float, ...]
    high_s: float


def bars(rows: list[Row]) -> Iterator[Bar]:
    """Of one fault."""
    for who in PHASES:
        for profile in dict.fromkeys(row["profile"] for row in rows):
            trials = [ends_s(who, row) for row in rows if row["profile"] == profile and not row["unsafe"]]
            told = sorted(filter(None, trials), key=lambda one: one[-1])
            if told:
                high_s = percentile([one[-1] for one in told], 95)
                yield Bar(who, profile, len(told), told[(len(told) - 1) // 2], high_s)


def ends_s(who: str, row: Row) -> tuple[float, ...] | None:
    """When each phase was over; one that was not seen lasted no time. None when the whole was not."""
    columns = ("failed_step_s", "requorum_s", "survivors_s")
    if who == "victim":
        columns = ("respawn_s", "heal_s", "first_commit_s")
    times = [float(row[column] or 0) for column in columns]
    if not row[columns[-1]]:
        return None
    return tuple(accumulate(times, float.__add__ if who == "victim" else max))


def drawing(rows: list[Row]) -> Iterator[str]:
    """The lines of an SVG file."""
    faults = {fault: [row for row in rows if row["fault"] == fault] for fault in dict.fromkeys(map(fault_of, rows))}
    shapes, top = [], 2 * ROW
    for fault, trials in faults.items():
        shapes.append(text(8, top + BAR, fault, "fault"))
        drawn = list(bars(trials))
        scale = BARS / max((max(bar.high_s, bar.ends_s[-1]) for bar in drawn), default=1.0)
        for bar in drawn:
            top += ROW
            shapes += row_of(bar, scale, top)
        top += 2 * ROW
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}">'
    yield f"<style>{STYLE}</style>"
    yield from legend()
    yield from shapes
    yield "</svg>"


def fault_of(row: Row) -> str:
    return row["fault"]


def row_of(bar: Bar, scale: float, top: int) -> Iterator[str]:
    yield text(24, top + BAR, f"{bar.who}, {bar.profile}", "faint")
    begin_s = 0.0
    for name, end_s in zip(PHASES[bar.who], bar.ends_s, strict=True):
        said = f"<title>{name} after {end_s:.2f} s</title>"
        place = f'x="{LABELS + begin_s * scale:.1f}" y="{top + 3}" width="{(end_s - begin_s) * scale:.1f}"'
        yield f'<rect {place} height="{BAR}" style="fill: var(--p{number(bar.who, name)})">{said}</rect>'
        begin_s = end_s
    high = LABELS + bar.high_s * scale
    yield f'<line class="high" x1="{high:.1f}" x2="{high:.1f}" y1="{top + 1}" y2="{top + BAR + 5}"/>'
    told = f"{bar.ends_s[-1]:.2f} s, 95 %: {bar.high_s:.2f} s ({bar.trials})"
    yield text(LABELS + BARS + 10, top + BAR, told, "faint")


def legend() -> Iterator[str]:
    left = 8
    for who, names in PHASES.items():
        for name in names:
            color = f"fill: var(--p{number(who, name)})"
            yield f'<rect x="{left}" y="8" width="{BAR}" height="{BAR}" style="{color}"/>'
            said = f"{who}: {name}"
            yield text(left + 20, 8 + BAR - 2, said, "faint")
            left += 32 + 7 * len(said)


def number(who: str, name: str) -> int:
    """Of the colour of a phase."""
    return 3 * list(PHASES).index(who) + PHASES[who].index(name)


def text(x: int, y: int, said: str, kind: str) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(said)}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="+", type=Path)
    rows: list[Row] = []
    for path in parser.parse_args().csv:
        with path.open(newline="") as file:
            rows += csv.DictReader(file)
    sys.stdout.writelines(f"{line}\n" for line in drawing(rows))


if __name__ == "__main__":
    main()
