"""Where members live: nodes, and which member is on which."""

from __future__ import annotations

import enum

import msgspec

from chaos.model.workload import Workload

CONTROL_NODE = "node-control"


class Restart(enum.Enum):
    """What happens to a member that ends before the job is over."""

    ALWAYS = "always"
    NEVER = "never"


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One member on one node."""

    member: str
    role: str
    node: str


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every member of a job with its role and node."""

    placements: tuple[Placement, ...]
    restart: Restart

    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.node for p in self.placements))

    def roles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.role for p in self.placements))

    def on(self, node: str) -> tuple[str, ...]:
        """The members of a node."""
        return tuple(p.member for p in self.placements if p.node == node)

    def members(self, role: str) -> tuple[str, ...]:
        return tuple(p.member for p in self.placements if p.role == role)


def place(workload: Workload, nodes: int, restart: Restart) -> Topology:
    """Spread replicas over `nodes` in turn; the control plane gets a node of its own.

    The control plane stands apart so that taking a node away never takes the lighthouse by accident.
    """
    placements = []
    for role, spec in workload.roles.items():
        for index, member in enumerate(spec.members):
            node = f"node-{index % nodes}" if role == "replica" else CONTROL_NODE
            placements.append(Placement(member, role, node))
    return Topology(tuple(placements), restart)
