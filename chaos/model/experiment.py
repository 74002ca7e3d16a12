"""An experiment, as a person writes it in YAML: which faults hit which targets of a job, when, and what must hold."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from chaos.model.topology import Restart

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]


class WorkloadSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The job to run. `program` is the Python module that describes it; `settings` are handed to it untouched."""

    recipe: str
    replicas: Count
    min_replicas: Count
    steps: Count
    program: str = "training"
    settings: dict[str, str | int | float | bool] = {}


class TopologySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes carry the replicas, and whether members that end are started again."""

    nodes: Count = 1
    restart: Restart = Restart.ALWAYS


class Pick(enum.Enum):
    """Which members of a role a fault hits."""

    ONE = "one"
    ALL = "all"


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Members by role; the seed chooses the victim of `one`, `member` names it within the role instead."""

    role: str
    pick: Pick = Pick.ONE
    member: str | None = None


class Trigger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a fault starts: once step `step` is committed, or `seconds` after the baseline. Exactly one is set."""

    step: Count | None = None
    seconds: Annotated[float, Meta(ge=0)] | None = None


class FaultSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault of the catalogue, aimed and timed. `args` are the fault's own arguments."""

    fault: str
    target: Target
    at: Trigger
    args: dict[str, Any] = {}


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The healthy start: `steps` in a row committed by every replica, else nothing is injected."""

    steps: Count = 5
    timeout_s: Seconds = 120.0


class Quiesce(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The end: after the last fault, `common_steps` committed by every replica."""

    common_steps: Count = 10
    timeout_s: Seconds = 120.0


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole experiment. `why` is one sentence: what happens in real clusters that this stands for.

    `monitors` maps the name of each monitor that judges the run to its thresholds.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    why: str
    workload: WorkloadSpec
    monitors: dict[str, dict[str, Any] | None]
    topology: TopologySpec = TopologySpec()
    faults: tuple[FaultSpec, ...] = ()
    baseline: Baseline = Baseline()
    quiesce: Quiesce = Quiesce()
    disturb_timeout_s: Seconds = 120.0
    seed: int = 1
