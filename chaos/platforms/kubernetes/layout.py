"""Who keeps the members of a job alive, and what their pods are called: the four ways in which people run replicas.

A keeper is an object of the cluster that starts its members' pods again: a MonarchMesh by way of the operator, or a
StatefulSet. Lighthouse and controller have a StatefulSet each, whatever the layout. What nothing is to start again is a
bare pod, whatever the layout. No I/O.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.model.errors import BadInput
from chaos.model.topology import Restart, Topology
from chaos.model.workload import Workload

REPLICA = "replica"
HOST_NAME_MAX = 64
"""A longer name of a pod with its Service and namespace cannot be a host name; Linux allows no more."""


class Layout(enum.Enum):
    """What keeps the replicas."""

    MESH = "mesh"
    """One MonarchMesh with a pod for each: the scheduler chooses their nodes, and Kueue admits all of them or none."""
    MESH_PER_REPLICA = "mesh-per-replica"
    """As the public recipe has it: each on the plan's node, each admitted by itself."""
    STATEFULSET = "statefulset"
    """One StatefulSet with a pod for each, as the operator would make of the one mesh."""
    STATEFULSET_PER_REPLICA = "statefulset-per-replica"
    """Each on the plan's node; the only one in which a replica can be moved to another."""

    @property
    def shared(self) -> bool:
        """Whether one keeper has all replicas."""
        return self in (Layout.MESH, Layout.STATEFULSET)

    @property
    def meshes(self) -> bool:
        return self in (Layout.MESH, Layout.MESH_PER_REPLICA)


class Kind(enum.Enum):
    POD = "Pod"
    SET = "StatefulSet"
    MESH = "MonarchMesh"


@dataclass(frozen=True)
class Keeper:
    """One object and the members it keeps, in the order of their pods' numbers. `service` names their pods."""

    kind: Kind
    name: str
    role: str
    service: str
    members: tuple[str, ...]
    on_demand: bool

    @property
    def queued(self) -> bool:
        """Whether a queue admits its pods, if there is one: the control plane needs no GPUs."""
        return self.role == REPLICA and not self.on_demand

    def pods(self) -> dict[str, str]:
        """Pod -> member."""
        return {f"{self.name}-{number}": member for number, member in enumerate(self.members)}


class Keepers:
    """All keepers of one run."""

    def __init__(self, run: str, workload: Workload, topology: Topology, layout: Layout) -> None:
        self._all = list(_keepers(run, workload, topology, layout))
        self._of = {member: keeper for keeper in self._all for member in keeper.members}
        self._members = {pod: member for keeper in self._all for pod, member in keeper.pods().items()}
        self._pods = {member: pod for pod, member in self._members.items()}

    def __iter__(self) -> Iterator[Keeper]:
        return iter(self._all)

    def of(self, member: str) -> Keeper:
        return self._of[member]

    def pod(self, member: str) -> str:
        return self._pods[member]

    def member(self, pod: str) -> str | None:
        """Whose pod that is; None when it is nobody's."""
        return self._members.get(pod)

    def members(self) -> dict[str, str]:
        """Pod -> member, of all."""
        return self._members

    def hosts(self) -> dict[str, str]:
        """What each member's pod is called by the others: found by the search path, whatever the cluster's domain."""
        return {member: f"{pod}.{self._of[member].service}" for pod, member in self._members.items()}

    def check(self, namespace: str) -> None:
        """BadInput when a pod could not be told its full name."""
        longest = max((f"{host}.{namespace}.svc.cluster.local" for host in self.hosts().values()), key=len)
        if len(longest) > HOST_NAME_MAX:
            raise BadInput(
                f"{longest} has {len(longest)} characters, a host name has {HOST_NAME_MAX} at most; "
                f"type a namespace with {len(longest) - HOST_NAME_MAX} characters less"
            )


def _keepers(run: str, workload: Workload, topology: Topology, layout: Layout) -> Iterator[Keeper]:
    never = topology.restart is Restart.NEVER
    for role, spec in workload.roles.items():
        alone = never or spec.on_demand
        if role != REPLICA or alone:
            kind = Kind.POD if alone else Kind.SET
            for member in spec.members:
                yield Keeper(kind, f"{run}-{member}", role, run, (member,), spec.on_demand)
        elif layout.shared:
            yield _of_replicas(run, layout, "", spec.members)
        else:
            for number, member in enumerate(spec.members):
                yield _of_replicas(run, layout, str(number), (member,))


def _of_replicas(run: str, layout: Layout, number: str, members: tuple[str, ...]) -> Keeper:
    """The operator takes letters and digits only, and calls the Service of a mesh as it likes."""
    if layout.meshes:
        name = f"{run}r{number}"
        return Keeper(Kind.MESH, name, REPLICA, f"{name}-svc", members, on_demand=False)
    name = f"{run}-{members[0] if number else REPLICA}"
    return Keeper(Kind.SET, name, REPLICA, run, members, on_demand=False)
