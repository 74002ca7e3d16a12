"""An experiment, as a person writes it in YAML: which faults hit which targets of a job, when, and what must hold."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from chaos.model.injections import Point
from chaos.model.topology import Restart
from chaos.model.verdict import Outcome

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
    """How many members of a role a fault hits; a minority is the most that leaves more standing than it hits."""

    ONE = "one"
    ALL = "all"
    MINORITY = "minority"
    MAJORITY = "majority"


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Members by role. The seed chooses which; at most one of `pick`, `count`, `percent` and `member` says how many.

    Roles are those of the job, `node`, and roles of the moment, known only while the job runs: `donor` and `healing`
    (the two ends of a heal), `leader` (the first of the quorum), `store_owner` (the first of its members that is up to
    date, whose store the process group meets at), `at_point` (the member that reached the trigger's point).
    """

    role: str
    pick: Pick | None = None
    count: Count | None = None
    percent: Annotated[float, Meta(gt=0, le=100)] | None = None
    member: str | None = None


class On(enum.Enum):
    """Events that can start a fault."""

    QUORUM_CHANGE = "quorum_change"
    HEAL_STARTED = "heal_started"
    HEAL_ENDED = "heal_ended"
    MEMBER_LOST = "member_lost"


class Trigger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a fault starts; exactly one of the four is set.

    `step`: once that step is committed. `seconds`: that long after the baseline. `event`: at the next such event after
    the baseline. `point`: when a trainer next reaches that named point of its step, which it does not leave until the
    fault is in force.
    """

    step: Count | None = None
    seconds: Annotated[float, Meta(ge=0)] | None = None
    event: On | None = None
    point: Point | None = None


class Repeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fault comes `count` times: every `period_s`, or at random with `mtbf_s` between two on average (Poisson)."""

    count: Count
    period_s: Seconds | None = None
    mtbf_s: Seconds | None = None


class FaultSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault of the catalogue, aimed and timed. `args` are the fault's own arguments.

    `for_s` is how long a fault that can be undone stays; with `follow` it moves on to the next life of a target that
    dies under it, else it ends with that life.
    """

    fault: str
    target: Target
    at: Trigger
    args: dict[str, Any] = {}
    for_s: Seconds | None = None
    follow: bool = False
    repeat: Repeat | None = None


class Chance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault of a mix; `weight` is its share, relative to the others'."""

    weight: Annotated[float, Meta(gt=0)]
    fault: str
    target: Target
    args: dict[str, Any] = {}
    for_s: Seconds | None = None


class Mix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A storm: at each repetition the seed draws one fault by weight."""

    at: Trigger
    repeat: Repeat
    faults: Annotated[tuple[Chance, ...], Meta(min_length=1)]


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The healthy start: `steps` in a row committed by every replica, else nothing is injected."""

    steps: Count = 5
    timeout_s: Seconds = 120.0


class Quiesce(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The end: after the last fault, `common_steps` committed by every replica."""

    common_steps: Count = 10
    timeout_s: Seconds = 120.0


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run shows as long as a known bug is there: `outcome` is not PASS, and one of the monitors `by` says so.

    `reference` is where the bug is publicly described.
    """

    outcome: Outcome
    by: Annotated[tuple[str, ...], Meta(min_length=1)]
    reference: str


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole experiment. `why` is one sentence: what happens in real clusters that this stands for.

    `monitors` maps the name of each monitor that judges the run to its thresholds. `quorum_floor` is the number of
    replicas that faults must leave in the quorum (the workload's min_replicas if not given): a fault that could never
    keep it is refused, one that cannot keep it now waits; with 0 none does. `expect` makes it an experiment on a
    known bug.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    why: str
    workload: WorkloadSpec
    monitors: dict[str, dict[str, Any] | None]
    topology: TopologySpec = TopologySpec()
    faults: tuple[FaultSpec, ...] = ()
    mixes: tuple[Mix, ...] = ()
    quorum_floor: Annotated[int, Meta(ge=0)] | None = None
    baseline: Baseline = Baseline()
    quiesce: Quiesce = Quiesce()
    disturb_timeout_s: Seconds = 120.0
    seed: int = 1
    expect: Expect | None = None
