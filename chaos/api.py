"""What authors of faults and monitors import: this module and nothing else of torchchaos.

A fault is a frozen struct whose fields are its arguments; a monitor is a fold over a journal. Each stands in one file
of a package named by the entry-point groups `chaos.faults` and `chaos.monitors`, and is found there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Annotated, ClassVar, Generic, TypeVar

import msgspec
from msgspec import Meta

from chaos.model import events
from chaos.model.aim import Aim
from chaos.model.commits import Commit, Stretch, Tally
from chaos.model.events import AnyEvent
from chaos.model.history import Activity, History, Member
from chaos.model.injections import (
    Action,
    CpuLimit,
    Delete,
    Direction,
    DiskFill,
    Drain,
    Drop,
    Evict,
    FaultPoint,
    Freeze,
    FreezeKubelet,
    Held,
    Injection,
    Interface,
    IoLimit,
    Launch,
    Lethal,
    LinkDown,
    MemoryLimit,
    NodeDown,
    NoNames,
    Percent,
    Point,
    PortDown,
    PortGone,
    PortShape,
    Process,
    ProcessLimit,
    Rail,
    Shape,
    Signal,
    Spread,
)
from chaos.model.lives import Absences, Hit, Life
from chaos.model.past import Past
from chaos.model.plan import Plan, PlannedFault, Rhythm
from chaos.model.recovery import Survival, WayBack, survival, way_back
from chaos.model.topology import Restart
from chaos.model.verdict import Finding, Outcome
from chaos.model.wording import counted, listed, span

__all__ = [
    "Absences",
    "Action",
    "Activity",
    "Aim",
    "AnyEvent",
    "Commit",
    "CpuLimit",
    "Delete",
    "Direction",
    "DiskFill",
    "Drain",
    "Drop",
    "Evict",
    "Fault",
    "FaultPoint",
    "Finding",
    "Freeze",
    "FreezeKubelet",
    "Held",
    "History",
    "Hit",
    "Injection",
    "Interface",
    "IoLimit",
    "Launch",
    "Lethal",
    "Life",
    "Limits",
    "LinkDown",
    "Member",
    "MemoryLimit",
    "Monitor",
    "NoNames",
    "NodeDown",
    "Outcome",
    "Past",
    "Percent",
    "Plan",
    "PlannedFault",
    "Point",
    "PortDown",
    "PortGone",
    "PortShape",
    "Process",
    "ProcessLimit",
    "Rail",
    "Restart",
    "Rhythm",
    "Seconds",
    "Shape",
    "Signal",
    "Spread",
    "Stretch",
    "Survival",
    "Tally",
    "WayBack",
    "counted",
    "events",
    "listed",
    "span",
    "survival",
    "way_back",
]

Seconds = Annotated[float, Meta(gt=0)]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault: a pure function from its arguments (its fields) and its aim to injections.

    Arguments have ranges in their types, so that a search can draw from them. The docstring of a fault says in its
    first line what it does, for `chaos list`, and then why it happens in real clusters.
    """

    name: ClassVar[str]
    roles: ClassVar[frozenset[str]] = frozenset({"replica"})
    """Roles it may be aimed at; whatever may hit a replica may hit one in a role of the moment."""
    removes: ClassVar[bool] = True
    """It may take its targets out of the quorum for a while: the quorum floor counts it, and they must come back.

    Of a fault that removes nobody the targets stay survivors, which have to go on and live on.
    """

    @property
    def rhythm(self) -> Rhythm | None:
        """Set by a fault that comes and goes for as long as it lasts."""
        return None

    def injections(self, aim: Aim) -> Iterable[Injection]:
        """What to do to the aim's targets."""
        raise NotImplementedError


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A monitor's thresholds, units in their names. A monitor with thresholds derives its own."""


L = TypeVar("L", bound=Limits)


class Monitor(ABC, Generic[L]):
    """One property of a run, judged by folding over its journal.

    `observe` sees the events it watches in journal order, `history` having taken them in already. `broken` is set as
    soon as nothing that follows can mend the property; a broken safety monitor ends a live run. `conclude` is called
    once, after the last event. Missing data is UNKNOWN, never PASS.
    The docstring says in its first line what must hold, and then what a violation means for a training run.
    """

    name: ClassVar[str]
    safety: ClassVar[bool]
    """Safety: must hold at all times. Otherwise liveness: something good must happen in time."""
    watches: ClassVar[tuple[type[events.Event], ...]] = (events.Event,)
    """The kinds of events that `observe` is shown. Most events are steps, so it pays to leave them out."""
    ordinary: ClassVar[bool] = True
    """Whether it is shown ordinary steps, too (`chaos.model.commits`): most events of a run are, and whoever looks at
    what is out of the ordinary finds the others in the `stretches` of the past."""
    limits: ClassVar[type[Limits]] = Limits
    proves: ClassVar[bool] = False
    """It judges the experiment, not the job: it sits in every run, and no liveness failure counts unless it passes."""

    def __init__(self, plan: Plan, limits: L) -> None:
        self.plan = plan
        self.limit = limits
        self.broken: Finding | None = None

    def observe(self, event: AnyEvent, history: History) -> None:
        """Take one event in. A monitor that judges the past alone has nothing to do here."""

    @abstractmethod
    def conclude(self, history: History) -> Finding:
        """Judge the whole run."""

    def finding(
        self,
        outcome: Outcome,
        reading: str,
        measures: dict[str, float | int | str | None] | None = None,
        evidence: Iterable[int] = (),
    ) -> Finding:
        """A finding in this monitor's name."""
        return Finding(self.name, outcome, reading, measures or {}, tuple(dict.fromkeys(evidence)))
