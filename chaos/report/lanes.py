"""What a run looked like over its time: a lane for each member, faults as bands, step rate, loss and quorum.

A fold over the journal, and the shapes that a page draws of it, in percent of the run's length. However long the run,
the shapes are few: what follows one another and is too short to be seen is merged, and the worst of it is shown.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from math import inf
from statistics import fmean, median
from typing import Any, TypeVar

from chaos.model.events import AnyEvent, PhaseStarted, Step
from chaos.model.history import Activity, History
from chaos.model.past import Past
from chaos.model.plan import Plan
from chaos.model.wording import listed, span

W = TypeVar("W")
Piece = tuple[float, float, W]
"""From when to when, and what."""

SEEN_SHARE_MIN = 1 / 600
"""What takes less of the run's time is merged."""
COLUMNS_MAX = 240
STEPS_PER_COLUMN = 3
BANDS_MAX = 40
LANES_MAX = 48
BADGE_PERCENT = 7.0
"""How far apart numbers of faults must be to stand side by side on a phone."""
SILENT_S_MIN = 1.0
SILENT_FACTOR = 5.0
"""A replica without a step for so many times longer than usual is shown as silent, though it has not left."""

HEIGHT = 100
WIDTH = 1000

STATES = {
    "training": "takes part",
    "healing": "heals",
    "waiting": "alive, waits for a quorum",
    "silent": "alive, makes no step",
    "starting": "alive, is being built",
    "down": "down",
    "ended": "ended",
}
"""What a lane can show, and its words. Later ones are worse, but an end is no harm."""
_WORSE = {**{state: rank for rank, state in enumerate(STATES)}, "ended": -1}
_SHOWN = {
    Activity.TRAINING: "training",
    Activity.HEALING: "healing",
    Activity.WAITING: "waiting",
    Activity.STARTING: "starting",
    Activity.DOWN: "down",
    Activity.FINISHED: "ended",
}


@dataclass(frozen=True)
class Span:
    """A part of a lane, in percent. `height` is that of a bar in it."""

    left: float
    width: float
    state: str
    title: str
    height: float = 100.0


@dataclass(frozen=True)
class Lane:
    name: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Curve:
    """A line over the time: an SVG path in a box of `WIDTH` by `HEIGHT`, and what its highest and lowest value are."""

    name: str
    path: str
    high: str
    low: str
    last: str
    filled: bool = False


@dataclass(frozen=True)
class Band:
    """A fault from its start to its end. `row` keeps numbers apart that would cover each other."""

    number: int
    seq: int
    left: float
    width: float
    row: int
    said: str


@dataclass(frozen=True)
class Chart:
    """All that is drawn. `hidden` says what was left out."""

    length_s: float
    ticks: tuple[tuple[float, str], ...]
    phases: tuple[Span, ...]
    bands: tuple[Band, ...]
    lanes: tuple[Lane, ...]
    quorum: Lane
    curves: tuple[Curve, ...]
    hidden: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return max((band.row for band in self.bands), default=-1) + 1


@dataclass
class Watch:
    """The fold."""

    plan: Plan
    _changes: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    """Member -> when it began to do what."""
    _stepped_s: dict[str, float] = field(default_factory=dict)
    """Replica that takes part -> the time of its newest step."""
    _quorums: list[tuple[float, int, int]] = field(default_factory=list)
    """When new steps were first committed in which quorum, and of how many."""
    _times_s: array[float] = field(default_factory=lambda: array("d"))
    _losses: array[float] = field(default_factory=lambda: array("d"))
    _top: int = 0

    def see(self, event: AnyEvent, history: History) -> None:
        """Take in an event that the history has taken in."""
        if isinstance(event, PhaseStarted) and event.phase == "drain":
            for name in self._changes:
                self._change(name, event.t_s, "ended")
        member = history.members.get(event.member)
        if member is None:
            return
        state = "training" if member.role != "replica" and member.alive else _SHOWN[member.activity]
        self._change(member.name, event.t_s, "ended" if history.past.drain_s < inf else state)
        if isinstance(event, Step) and event.t_s < history.past.drain_s:
            self._step(event)

    def _change(self, member: str, t_s: float, state: str) -> None:
        changes = self._changes[member]
        before = changes[-1][1] if changes else None
        if state != "training" or before != "training":
            self._quiet(member, t_s)
            self._stepped_s.pop(member, None)
        if state != before and (changes or state != "down"):
            changes.append((t_s, state))

    def _step(self, event: Step) -> None:
        self._quiet(event.member, event.t_s)
        self._stepped_s[event.member] = event.t_s
        if not event.committed or event.step <= self._top:
            return
        self._top = event.step
        if event.loss is not None:
            self._times_s.append(event.t_s)
            self._losses.append(event.loss)
        if not self._quorums or self._quorums[-1][1:] != (event.quorum_id, event.participants):
            self._quorums.append((event.t_s, event.quorum_id, event.participants))

    def _quiet(self, member: str, until_s: float) -> None:
        """Note a time without a step; whether that was unusual is known at the end."""
        since_s = self._stepped_s.get(member)
        if since_s is not None and until_s - since_s >= SILENT_S_MIN:
            self._changes[member] += [(since_s, "silent"), (until_s, "training")]

    def chart(self, past: Past, length_s: float | None = None) -> Chart:
        """The shapes; `length_s` is what the whole width stands for, the run's own length if not given."""
        for member in list(self._stepped_s):
            self._quiet(member, past.until_s)
        length_s = max(length_s or past.now_s, 0.001)
        moves_s = [move.t_s for move in past.moves()]
        waits_s = [later - one for one, later in pairwise(moves_s)]
        silent_s = max(SILENT_S_MIN, SILENT_FACTOR * median(waits_s)) if waits_s else SILENT_S_MIN
        members = [one for one in self.plan.topology.placements if self._changes.get(one.member)]
        members.sort(key=lambda one: one.role != "replica")
        lanes = [
            Lane(one.member, tuple(_spans(self._changes[one.member], past.now_s, length_s, silent_s, one.member)))
            for one in members[:LANES_MAX]
        ]
        bands = tuple(_bands(past, length_s))
        hidden = [f"{len(members) - LANES_MAX} more members"] if len(members) > LANES_MAX else []
        hidden += [f"{len(past.started) - BANDS_MAX} more faults"] if len(past.started) > BANDS_MAX else []
        columns = max(1, min(COLUMNS_MAX, len(moves_s) // STEPS_PER_COLUMN))
        curves = (_rate(moves_s, columns, length_s), _loss(self._times_s, self._losses, columns, length_s))
        return Chart(
            length_s,
            tuple(_ticks(length_s)),
            tuple(_phases(past, length_s)),
            bands,
            tuple(lanes),
            Lane("quorum", tuple(self._quorum(past, length_s))),
            tuple(curve for curve in curves if curve),
            tuple(hidden),
        )

    def _quorum(self, past: Past, length_s: float) -> Iterator[Span]:
        """Bars as high as the quorum is large."""
        ends_s = [t_s for t_s, *_ in self._quorums[1:]] + [past.until_s]
        replicas = max(1, self.plan.workload.replicas)
        told = zip(self._quorums, ends_s, strict=False)
        pieces = [(begin_s, end_s, (-size, quorum_id)) for (begin_s, quorum_id, size), end_s in told]
        for begin_s, end_s, (missing, quorum_id) in _merged(pieces, SEEN_SHARE_MIN * length_s, lambda one: one):
            title = f"quorum {quorum_id}, {-missing} of {replicas} replicas: {_when(begin_s, end_s)}"
            height = min(100.0, 100 * -missing / replicas)
            yield Span(*_place(begin_s, end_s, length_s), state="quorum", title=title, height=round(height, 1))


def _spans(
    changes: list[tuple[float, str]], now_s: float, length_s: float, silent_s: float, name: str
) -> Iterator[Span]:
    """What a member did, in shapes that can be seen."""
    ends_s = [t_s for t_s, _ in changes[1:]] + [now_s]
    pieces = [
        (begin_s, end_s, "training" if state == "silent" and end_s - begin_s < silent_s else state)
        for (begin_s, state), end_s in zip(changes, ends_s, strict=True)
    ]
    for begin_s, end_s, state in _merged(pieces, SEEN_SHARE_MIN * length_s, _WORSE.__getitem__):
        yield Span(
            *_place(begin_s, end_s, length_s), state=state, title=f"{name} {STATES[state]}: {_when(begin_s, end_s)}"
        )


def _merged(pieces: Iterable[Piece[W]], seen_s: float, worse: Callable[[W], Any]) -> list[Piece[W]]:
    """Alike neighbours are one; those too short to be seen are one until they can be, shown as the worst of them."""
    merged: list[Piece[W]] = []
    for begin_s, end_s, what in pieces:
        first_s, last_s, before = merged[-1] if merged else (begin_s, inf, what)
        short = max(last_s - first_s, end_s - begin_s) < seen_s
        if merged and (what == before or short):
            merged[-1] = (first_s, max(end_s, last_s), max(what, before, key=worse))
        else:
            merged.append((begin_s, end_s, what))
    return merged


def _bands(past: Past, length_s: float) -> Iterator[Band]:
    """The first faults, each until the last of it was over."""
    rows: list[float] = []
    for number, started in enumerate(list(past.started.values())[:BANDS_MAX], start=1):
        hits = past.hits_by(started.fault_id)
        end_s = max((end.t_s for hit in hits for end in hit.ends), default=started.t_s)
        if any(hit.held and len(hit.ends) < len(hit.proofs) for hit in hits):
            end_s = past.now_s
        left, width = _place(started.t_s, max(end_s, started.t_s), length_s)
        row = next((row for row, taken in enumerate(rows) if left >= taken), len(rows))
        rows[row : row + 1] = [left + BADGE_PERCENT]
        lasted = f", for {span(end_s - started.t_s)} s" if end_s > started.t_s else ""
        said = f"{started.fault} on {listed(started.targets)} at {started.t_s:.1f} s ({started.trigger}){lasted}"
        yield Band(number, started.seq, left, width, row, said)


def _phases(past: Past, length_s: float) -> Iterator[Span]:
    told = sorted((event.t_s, name) for name, event in past.phases.items())
    ends_s = [t_s for t_s, _ in told[1:]] + [past.now_s]
    for (begin_s, name), end_s in zip(told, ends_s, strict=False):
        yield Span(*_place(begin_s, end_s, length_s), state=name, title=f"{name}: {_when(begin_s, end_s)}")


def _rate(moves_s: list[float], columns: int, length_s: float) -> Curve | None:
    """New steps in a second."""
    if not moves_s:
        return None
    counts = [0] * columns
    for t_s in moves_s:
        counts[_column(t_s, columns, length_s)] += 1
    rates = [count * columns / length_s for count in counts]
    points = [(column, rate) for column, rate in enumerate(rates)]
    high = max(rates)
    outline = _line([(0, 0.0), *points, (columns - 1, 0.0)], columns, 0.0, high)
    return Curve("new steps per second", outline, f"{high:.3g}", "0", "", filled=True)


def _loss(times_s: array[float], losses: array[float], columns: int, length_s: float) -> Curve | None:
    """The mean of each column; where it is no number the line has a gap."""
    by_column: dict[int, list[float]] = defaultdict(list)
    for t_s, loss in zip(times_s, losses, strict=True):
        by_column[_column(t_s, columns, length_s)].append(loss)
    found = [(column, fmean(of_column)) for column, of_column in sorted(by_column.items())]
    finite = [loss for _, loss in found if math.isfinite(loss)]
    if not finite:
        return None
    low, high = min(finite), max(finite)
    parts = (list(group) for sound, group in groupby(found, key=lambda one: math.isfinite(one[1])) if sound)
    path = " ".join(_line(part, columns, low, high) for part in parts)
    return Curve("loss", path, f"{high:.4g}", f"{low:.4g}", f"{losses[-1]:.4g}")


def _line(points: Iterable[tuple[int, float]], columns: int, low: float, high: float) -> str:
    """An SVG path through the middles of columns."""
    scale = HEIGHT / (high - low) if high > low else 0.0
    told = (f"{(column + 0.5) * WIDTH / columns:.1f},{HEIGHT - (value - low) * scale:.1f}" for column, value in points)
    return "M" + " L".join(told)


def _column(t_s: float, columns: int, length_s: float) -> int:
    return max(0, min(columns - 1, int(t_s / length_s * columns)))


def _ticks(length_s: float) -> Iterator[tuple[float, str]]:
    """Round times, five or so."""
    rough_s = length_s / 5
    power = 10.0 ** math.floor(math.log10(rough_s))
    step_s = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough_s)
    for number in range(int(length_s / step_s) + 1):
        yield round(100 * number * step_s / length_s, 2), f"{number * step_s:g}"


def _place(begin_s: float, end_s: float, length_s: float) -> tuple[float, float]:
    """Left edge and width in percent."""
    left = min(100.0, max(0.0, 100 * begin_s / length_s))
    return round(left, 2), round(min(100.0 - left, max(0.0, 100 * (end_s - begin_s) / length_s)), 2)


def _when(begin_s: float, end_s: float) -> str:
    return f"{begin_s:.1f} to {end_s:.1f} s, {span(max(0.0, end_s - begin_s))} s"
