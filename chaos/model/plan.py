"""A plan: an experiment with nothing left to chance. The same seed and topology give the same plan."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from chaos.model.experiment import Experiment, Trigger
from chaos.model.injections import Injection
from chaos.model.topology import Topology
from chaos.model.workload import Workload


class Rhythm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A held fault that comes and goes: in each `period_s` it is on for the share `duty`, first."""

    period_s: Annotated[float, Meta(gt=0)]
    duty: Annotated[float, Meta(gt=0, lt=1)]


class PlannedFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One occurrence of a fault. `id` is its name in the journal; `needs` are capabilities of the platform.

    `targets` and `injections` are known beforehand for the roles of the job and for nodes. For a role of the moment
    they are empty, and `hits` of its members are chosen by `id` and the seed when the trigger is met. `after_s` is the
    wait from the trigger; `removes` tells a fault that may take its targets out of the quorum.
    """

    id: str
    fault: str
    at: Trigger
    role: str
    targets: tuple[str, ...]
    injections: tuple[Injection, ...]
    args: dict[str, Any] = {}
    hits: int = 1
    after_s: float = 0.0
    for_s: float | None = None
    rhythm: Rhythm | None = None
    follow: bool = False
    removes: bool = True
    needs: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything a run and its judgement need."""

    experiment: Experiment
    workload: Workload
    topology: Topology
    faults: tuple[PlannedFault, ...]

    @property
    def quorum_floor(self) -> int:
        """How many replicas faults must leave in the quorum."""
        floor = self.experiment.quorum_floor
        return self.workload.min_replicas if floor is None else floor

    def replicas(self) -> tuple[str, ...]:
        return self.topology.members("replica")

    def members(self) -> tuple[str, ...]:
        """All members of the job, without those that only a fault starts."""
        return tuple(p.member for p in self.topology.placements if not self.workload.roles[p.role].on_demand)
