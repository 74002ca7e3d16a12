"""The workload: what the job under test says of itself, as data.

The job prints this description as JSON; a platform starts members from it. Neither side imports the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class Role(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Members that run the same program.

    `command` may hold placeholders in braces, see `fill`. Members `on_demand` are not part of the job: they are started
    by a fault, and end with it.
    """

    members: tuple[str, ...]
    command: tuple[str, ...]
    on_demand: bool = False


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job: its roles, how many replicas it has and needs, and how many steps it trains.

    `capabilities` are what faults may need of the job itself: `fault_points`. `imports` are the modules that its
    members cannot start without. `gradients_over` is the path that gradients are to take: "rdma", or not said.
    """

    version: int
    recipe: str
    replicas: int
    min_replicas: int
    steps: int
    roles: dict[str, Role]
    env: dict[str, str] = {}
    capabilities: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    gradients_over: Literal["rdma", ""] = ""

    def members(self) -> dict[str, str]:
        """Name of each member -> its role."""
        return {member: role for role, spec in self.roles.items() for member in spec.members}

    def command(self, member: str) -> tuple[str, ...]:
        return self.roles[self.members()[member]].command


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace each `{key}` by its value; ValueError names a placeholder that nobody fills."""

    def value(match: re.Match[str]) -> str:
        key = match.group(1)
        if key not in values:
            raise ValueError(f"the workload's command holds {{{key}}}; known are: {', '.join(sorted(values))}")
        return values[key]

    return _PLACEHOLDER.sub(value, template)
