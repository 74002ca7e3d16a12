"""What the runner needs of a platform, and nothing more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Protocol

import msgspec

from chaos.model.events import AnyEvent, Event
from chaos.model.history import History
from chaos.model.injections import HeldInjection, OneShot, Proof
from chaos.model.topology import Topology
from chaos.model.workload import Workload

Emit = Callable[[Event], None]
"""Takes an event whose `seq` is not set yet; called in the event loop's thread, in the order things were seen."""

Watcher = Callable[[AnyEvent, History], None]
"""Sees each event after it was recorded, and the history that holds it; must return at once."""


class Deployment(msgspec.Struct, frozen=True):
    """All a platform needs to bring a job up.

    `run_dir` is an existing folder of the run; `run_id` is unique on this machine; `epoch_mono_s` is the
    CLOCK_MONOTONIC reading at which the run's clock `t_s` is zero.
    """

    run_id: str
    run_dir: Path
    workload: Workload
    topology: Topology
    epoch_mono_s: float


class InjectionRefused(Exception):
    """An injection could not be made or not be proven in force; the message says why."""


class PlatformLost(Exception):
    """The platform itself broke; nothing that happened since can be trusted."""


class RunAborted(Exception):
    """Somebody else ended the run; the message says how."""


@dataclass
class Hold:
    """A held injection in force, for as long as its context is open.

    Afterwards `reverted` proves that it is undone or that its target died; `trouble` says what went wrong: it was lost
    before its time, or its end is not proven. `target_gone`: a trainer that had it is no more, though its member lives.
    """

    order: str
    proof: Proof
    reverted: Proof | None = None
    trouble: str = ""
    target_gone: bool = False

    @property
    def ended(self) -> bool:
        """It is in force no more, whether its time is up or not."""
        return self.target_gone or bool(self.trouble)


class Cluster(Protocol):
    """A job's members, alive on a platform. Leaving its context ends all of them and leaves nothing behind."""

    async def inject(self, injection: OneShot) -> Proof:
        """Make the disturbance and return once it was read back as in force; InjectionRefused otherwise."""

    def hold(self, injection: HeldInjection, for_s: float = inf) -> AbstractAsyncContextManager[Hold]:
        """Make the disturbance, prove it in force and keep it until the context ends; InjectionRefused otherwise.

        That is `for_s` from now at most: for a target that cannot be told meanwhile.
        """

    async def stop(self) -> None:
        """End the job in order: trainers finish their step, bounded; no member is restarted after this."""

    async def wait_job_over(self) -> int:
        """Wait for the controller to end the job by itself (exit status 0) or for good (restarts used up)."""


class Platform(Protocol):
    """Where jobs can be deployed."""

    name: str

    def isolation(self) -> str:
        """How well members are separated here, for the verdict: namespaces, user-namespaces or processes."""

    def capabilities(self) -> frozenset[str]:
        """What faults may need and this platform has here."""

    def deploy(self, deployment: Deployment, emit: Emit) -> AbstractAsyncContextManager[Cluster]:
        """Bring every member up; events of members and of the platform go to `emit` while the context is open."""
