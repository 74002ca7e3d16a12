"""What stands in an `Injection` object: the runner writes its spec, the agent of the node its status."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

from chaos.agent.wire import TTL_S_MAX
from chaos.model.injections import Injection
from chaos.platforms.kubernetes.objects import GROUP, VERSION

API_VERSION = f"{GROUP}/{VERSION}"
FINALIZER = f"{GROUP}/revert"
"""Keeps the object until the agent has proven that nothing of it is in force."""


class Target(msgspec.Struct, frozen=True):
    """One life of a member: its pod by unique id, its processes by their pids in the pod, its interfaces by role. Or a
    node: it has no pod, and `nics` are its own.
    """

    member: str
    nics: dict[str, str]
    incarnation: int = 0
    pod: str = ""
    uid: str = ""
    pid: int = 0
    trainer: int | None = None


class Spec(msgspec.Struct, frozen=True):
    """`peers` are the addresses behind the names in a Drop. `run` is the name of the Lease that has to be renewed.

    `alone_s` is for what cuts the agent off from the API server: it is held for so long by the agent's clock, whether
    or not a renewal is seen. `again`: a container that is ended may be started again.
    """

    node: str
    run: str
    target: Target
    injection: Injection
    peers: dict[str, tuple[str, ...]] = {}
    alone_s: Annotated[float, Meta(ge=0, le=TTL_S_MAX)] = 0.0
    again: bool = False


class State(enum.Enum):
    ASKED = ""
    READY = "Ready"
    """The agent sees the target's processes and waits for their end, which is for others to bring about; or it begins
    what cuts it off, and is not heard again before that has ended.
    """
    IN_FORCE = "InForce"
    REFUSED = "Refused"
    LOST = "Lost"
    """It ended before it was to, and `reason` says why; `evidence` proves that it is undone."""
    TARGET_GONE = "TargetGone"
    """The trainer that had it is no more, though its pod lives."""
    REVERTED = "Reverted"


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """`evidence` is what was read back on the node. `order` is a trainer's name for an order to it."""

    state: State = State.ASKED
    evidence: str = ""
    reason: str = ""
    order: str = ""
