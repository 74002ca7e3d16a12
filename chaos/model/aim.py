"""Aiming: which members a fault hits, from a role, a number and the seed's chance."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence

import msgspec

from chaos.model.errors import BadInput, near
from chaos.model.experiment import Pick, Target
from chaos.model.topology import Topology

NODE = "node"
MOMENT_ROLES = frozenset({"donor", "healing", "leader", "store_owner", "at_point"})
"""Roles that members have for a moment only; who has them is read from the history when the trigger is met."""


class Aim(msgspec.Struct, frozen=True):
    """The targets of one fault, and the job they are part of."""

    targets: tuple[str, ...]
    topology: Topology

    def members(self) -> tuple[str, ...]:
        """The targets, with the members on it in the place of a node."""
        members = (self.topology.on(target) or (target,) for target in self.targets)
        return tuple(dict.fromkeys(itertools.chain.from_iterable(members)))

    def others(self, role: str = "replica") -> tuple[str, ...]:
        """The members of a role that are not hit."""
        hit = self.members()
        return tuple(member for member in self.topology.members(role) if member not in hit)


def candidates(where: str, role: str, topology: Topology) -> tuple[str, ...]:
    """Who can be hit as `role`: for a role of the moment, every replica. BadInput when nobody can have it.

    A node that carries more than replicas is no target: lighthouse and controller are hit by their own roles only.
    """
    if role in MOMENT_ROLES:
        return topology.members("replica")
    if role == NODE:
        return tuple(node for node in topology.nodes() if set(topology.on(node)) <= set(topology.members("replica")))
    if role not in topology.roles():
        known = (*topology.roles(), NODE, *MOMENT_ROLES)
        raise BadInput(f"{where}.role {role!r} does not exist in this job; {near(role, known)}")
    return topology.members(role)


def number(where: str, target: Target, members: int) -> int:
    """How many of `members` a target hits, at least one. BadInput when it says so in two ways, or asks for too many."""
    said = [key for key in ("pick", "count", "percent", "member") if getattr(target, key) is not None]
    if len(said) > 1:
        raise BadInput(f"{where} has {' and '.join(said)}; keep one of them")
    if target.count is not None and target.count > members:
        raise BadInput(f"{where}.count is {target.count}, there are {members} of role {target.role!r}; type {members}")
    if target.count is not None:
        return target.count
    if target.percent is not None:
        return max(1, math.floor(members * target.percent / 100))
    match target.pick:
        case Pick.ALL:
            return members
        case Pick.MINORITY:
            return max(1, (members - 1) // 2)
        case Pick.MAJORITY:
            return members // 2 + 1
        case _:
            return 1


def draw(members: Iterable[str], count: int, chance: random.Random) -> tuple[str, ...]:
    """`count` of the members, in their order, by chance."""
    pool: Sequence[str] = sorted(members)
    chosen = set(chance.sample(pool, min(count, len(pool))))
    return tuple(member for member in pool if member in chosen)
