"""Injections: the closed set of primitive disturbances a platform can make.

Faults are built from these. The author of a fault never writes an undo: what can be undone is undone by whoever
holds the injection.
"""

from __future__ import annotations

import enum

import msgspec


class Process(enum.Enum):
    """A process inside a member."""

    MAIN = "main"
    TRAINER = "trainer"


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """End a member at once, with every process in it, as if its pod were lost. In force: its main process is gone."""

    member: str


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """Send a signal to one process of a member; the rest of the member lives on. In force: that process is gone."""

    member: str
    process: Process
    signal: int


Injection = Delete | Signal


class Proof(msgspec.Struct, frozen=True):
    """What was read back to say that an injection is in force.

    `incarnation` is the life of the member that was hit; `evidence` is one short sentence.
    """

    member: str
    incarnation: int
    evidence: str
