"""The events of a job: one typed structure per kind, and the writer that appends them to a file.

One file belongs to one process. A line goes out in a single write, so a reader never sees half a line of a live
process, and a process that dies leaves a file that is whole up to its last event.
Not here: when an event happens (``observe``, ``trainer``, ``controller``).
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import msgspec


def _kind(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=_kind):
    """What happened. The writer adds when, to which member, in which of its lives."""


class TrainerStarted(Event, frozen=True, kw_only=True):
    """The trainer is built and about to ask for its first quorum. ``boot_s``: seconds for import and build."""

    pid: int
    replica_id: str
    recipe: str
    device: str
    parameters: int
    boot_s: dict[str, float]


class Quorum(Event, frozen=True, kw_only=True):
    """A quorum with a new id or other members, or one in which this member heals.

    ``step``: updates in its own state.
    """

    quorum_id: int
    step: int
    participants: int
    members: list[str] | None
    max_step: int
    heal: bool


class HealStarted(Event, frozen=True, kw_only=True):
    """This member fetches the state of ``step`` updates from ``source``."""

    step: int
    source: str


class HealEnded(Event, frozen=True, kw_only=True):
    """The fetched state is loaded. ``digest``: of the state as loaded, null when digests are off."""

    step: int
    source: str
    digest: str | None


class HealServed(Event, frozen=True, kw_only=True):
    """This member offers its state of ``step`` updates to ``destinations``."""

    step: int
    destinations: list[str]


class Step(Event, frozen=True, kw_only=True):
    """One try at update ``step``. ``lr``: the rate used; ``digest``: of the state after the commit, when due.

    ``batch``: its number on this replica's shard; ``gradient_scale``: what the 1 of each contributor came back as from
    the exchange, None when it was not exchanged; ``rss_bytes``: resident memory of this process.
    """

    step: int
    committed: bool
    quorum_id: int
    participants: int
    healing: bool
    loss: float | None
    grad_norm: float | None
    tokens: int
    lr: float
    duration_s: float
    digest: str | None
    error: str | None
    batch: int
    gradient_scale: float | None
    rss_bytes: int


class FaultPointHit(Event, frozen=True, kw_only=True):
    """This trainer does ``action`` to itself at ``point``, as ``order`` says. ``step``: the update being tried."""

    order: str
    point: str
    action: str
    step: int


class TrainerFinished(Event, frozen=True, kw_only=True):
    """The trainer ends in order with ``step`` updates in its state; reason: steps_reached or stopped."""

    step: int
    reason: str


class TrainerFailed(Event, frozen=True, kw_only=True):
    """The trainer ends by an exception, given in one line."""

    error: str


class ControllerStarted(Event, frozen=True, kw_only=True):
    """The controller listens; it expects this many replicas."""

    replicas: int


class MemberAttached(Event, frozen=True, kw_only=True):
    """Monarch reached the worker host of a member at ``address``."""

    name: str
    member_incarnation: int
    address: str
    attach_s: float


class TrainerSpawned(Event, frozen=True, kw_only=True):
    """The trainer process of a member is alive and has announced itself."""

    name: str
    member_incarnation: int
    spawn_s: float


class MemberLost(Event, frozen=True, kw_only=True):
    """One life of a member is over for the controller."""

    name: str
    member_incarnation: int
    reason: str


class TrainerLost(Event, frozen=True, kw_only=True):
    """The controller tells the others not to wait for this trainer. ``reason``: ended, silent or cut_off."""

    name: str
    member_incarnation: int
    reason: str


class AttachFailed(Event, frozen=True, kw_only=True):
    """No trainer could be started in this life of a member. ``retry_in_s`` null: given up."""

    name: str
    member_incarnation: int
    attempt: int
    error: str
    retry_in_s: float | None


class ControllerFinished(Event, frozen=True, kw_only=True):
    """The job is over: steps_reached or stopped."""

    reason: str


class LighthouseStarted(Event, frozen=True, kw_only=True):
    """The lighthouse answers at ``address``."""

    address: str


class Writer:
    """Appends events to one file; safe to use from several threads.

    ``seq`` counts from 0 without gaps. Raises OSError when the file cannot be written.
    """

    def __init__(self, path: str | Path, *, member: str, incarnation: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()
        self._seq = 0
        self._member = member
        self._incarnation = incarnation

    def emit(self, event: Event) -> None:
        """Write one line."""
        fields: dict[str, Any] = msgspec.to_builtins(event)
        with self._lock:
            line = {
                "kind": fields.pop("kind"),
                "mono_s": time.monotonic(),
                "wall_s": time.time(),
                "member": self._member,
                "incarnation": self._incarnation,
                "seq": self._seq,
                **fields,
            }
            os.write(self._file, msgspec.json.encode(line) + b"\n")
            self._seq += 1

    def close(self) -> None:
        """Give the file back; nothing may be emitted afterwards."""
        os.close(self._file)
