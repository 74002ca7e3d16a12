"""A plan: an experiment with nothing left to chance. The same seed and topology give the same plan."""

from __future__ import annotations

import msgspec

from chaos.model.experiment import Experiment, Trigger
from chaos.model.injections import Injection
from chaos.model.topology import Topology
from chaos.model.workload import Workload


class PlannedFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault with its victims chosen. `id` is its name in the journal; `needs` are capabilities of the platform."""

    id: str
    fault: str
    targets: tuple[str, ...]
    at: Trigger
    injections: tuple[Injection, ...]
    needs: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything a run and its judgement need."""

    experiment: Experiment
    workload: Workload
    topology: Topology
    faults: tuple[PlannedFault, ...]

    def hit(self) -> frozenset[str]:
        """Members that some fault is aimed at."""
        return frozenset(target for fault in self.faults for target in fault.targets)

    def replicas(self) -> tuple[str, ...]:
        return self.topology.members("replica")
