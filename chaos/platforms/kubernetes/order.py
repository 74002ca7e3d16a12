"""What stands in an `Injection` object: the runner writes its spec, the agent of the node its status."""

from __future__ import annotations

import enum

import msgspec

from chaos.model.injections import Injection
from chaos.platforms.kubernetes.objects import GROUP, VERSION

API_VERSION = f"{GROUP}/{VERSION}"
FINALIZER = f"{GROUP}/revert"
"""Keeps the object until the agent has proven that nothing of it is in force."""


class Target(msgspec.Struct, frozen=True):
    """One life of a member: its pod by unique id, its processes by their pids in the pod, its interfaces by role."""

    member: str
    incarnation: int
    pod: str
    uid: str
    pid: int
    trainer: int | None
    nics: dict[str, str]


class Spec(msgspec.Struct, frozen=True):
    """`peers` are the addresses behind the names in a Drop. `run` is the name of the Lease that has to be renewed."""

    node: str
    run: str
    target: Target
    injection: Injection
    peers: dict[str, tuple[str, ...]] = {}


class State(enum.Enum):
    ASKED = ""
    READY = "Ready"
    """The agent sees the target's processes and waits for their end, which is for others to bring about."""
    IN_FORCE = "InForce"
    REFUSED = "Refused"
    LOST = "Lost"
    """It ended before it was to, and `reason` says why; `evidence` proves that it is undone."""
    REVERTED = "Reverted"


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """`evidence` is what was read back on the node. `order` is a trainer's name for an order to it."""

    state: State = State.ASKED
    evidence: str = ""
    reason: str = ""
    order: str = ""
