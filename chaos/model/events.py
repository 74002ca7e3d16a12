"""Everything that can stand in a journal, one frozen type per kind.

An event has the journal's number `seq`, the run's clock `t_s` (seconds since the run began, monotonic, taken where the
event happened), the `member` that saw it (`runner` for the runner) and its `incarnation`. Step k is the k-th committed
update, from 1; a state step counts the updates in a state, 0 being a fresh one. Kinds and fields that this version does
not know make an event `Unknown`, so that a journal of a newer version can be read and is judged with care.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from chaos.model.injections import Injection, Proof


def _kind(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag=_kind):
    """What every event carries."""

    seq: int = -1
    t_s: float
    member: str
    incarnation: int = 0

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)


# From the runner.


class RunStarted(Event, frozen=True, kw_only=True):
    """The journal's first event. `plan` is the digest of the plan that was run."""

    plan: str
    platform: str
    isolation: str
    wall_s: float
    versions: dict[str, str] = {}


class PhaseStarted(Event, frozen=True, kw_only=True):
    """`phase` is one of deploy, baseline, disturb, quiesce, drain."""

    phase: str


class PhaseFailed(Event, frozen=True, kw_only=True):
    """A phase did not reach its aim in its time."""

    phase: str
    reason: str


class FaultStarted(Event, frozen=True, kw_only=True):
    """The trigger of a planned fault was met; `trigger` says how, `injections` are what is made of it now.

    `removes` tells a fault that may take its targets out of the quorum.
    """

    fault_id: str
    fault: str
    targets: tuple[str, ...]
    trigger: str
    injections: tuple[Injection, ...] = ()
    removes: bool = True


class InjectionInForce(Event, frozen=True, kw_only=True):
    """An injection was read back as in force, `latency_s` after the decision."""

    fault_id: str
    injection: Injection
    proof: Proof
    latency_s: float

    @property
    def decided_s(self) -> float:
        """When it was decided upon: its effects may be seen before it is proven."""
        return self.t_s - self.latency_s


class InjectionFailed(Event, frozen=True, kw_only=True):
    """An injection could not be made or not be proven."""

    fault_id: str
    injection: Injection
    reason: str


class InjectionReverted(Event, frozen=True, kw_only=True):
    """A held injection was read back as undone, or its target was found dead; `latency_s` after the decision.

    `target_gone`: it ended with the trainer that it was done to, whose member lives.
    """

    fault_id: str
    injection: Injection
    proof: Proof
    latency_s: float
    target_gone: bool = False


class RevertFailed(Event, frozen=True, kw_only=True):
    """A held injection ended before its time, or was not proven undone."""

    fault_id: str
    injection: Injection
    reason: str


class FaultEnded(Event, frozen=True, kw_only=True):
    """Nothing of the fault is held any more."""

    fault_id: str


class FaultMissed(Event, frozen=True, kw_only=True):
    """A planned fault never met its trigger."""

    fault_id: str
    reason: str


class SafetyBroken(Event, frozen=True, kw_only=True):
    """A safety monitor spoke while the run went on; the run ends early."""

    monitor: str
    reading: str


class RunEnded(Event, frozen=True, kw_only=True):
    """The journal's last event. `completed` tells a run that went through its phases from one that was broken off."""

    completed: bool
    reason: str


# From the platform.


class MemberStarted(Event, frozen=True, kw_only=True):
    """A life of `member` began on `node`; `pid` is the main process as the machine sees it. `place` tells where in the
    network the node is, by the names of the topology's levels.
    """

    node: str
    address: str
    pid: int
    place: dict[str, str] = {}


class MemberExited(Event, frozen=True, kw_only=True):
    """A life of `member` ended; `status` is its exit code, or minus the signal that ended it."""

    status: int


class EventsLost(Event, frozen=True, kw_only=True):
    """Events of `member` did not arrive: a blind window."""

    reason: str
    count: int | None = None


class MemberWaits(Event, frozen=True, kw_only=True):
    """The platform has no place for `member` now; `reason` says why. Told again when that changes."""

    reason: str


class Admission(Event, frozen=True, kw_only=True):
    """What the queue says of a claim for `members` has changed: `admitted` on `flavors` of the cluster, or why not."""

    claim: str
    members: tuple[str, ...]
    admitted: bool
    flavors: tuple[str, ...] = ()
    reason: str = ""


class BytesCarried(Event, frozen=True, kw_only=True):
    """What a life of the member `name` has sent and received since it was first looked at, by path: RDMA ports and net
    devices. None: no RDMA port of it counts bytes.
    """

    name: str
    member_incarnation: int
    rdma_bytes: int | None
    ethernet_bytes: int


# From trainers.


class TrainerStarted(Event, frozen=True, kw_only=True):
    """A trainer is built and about to train; `pid` counts in its own pid namespace; `boot_s` are seconds by part."""

    pid: int
    replica_id: str
    recipe: str
    device: str
    parameters: int
    boot_s: dict[str, float] = {}


class Quorum(Event, frozen=True, kw_only=True):
    """The member got a quorum of another id or with other members, or one in which it must heal."""

    quorum_id: int
    step: int
    participants: int
    members: tuple[str, ...] | None = None
    max_step: int
    heal: bool


class HealStarted(Event, frozen=True, kw_only=True):
    """The member begins to fetch the state of state step `step` from `source`."""

    step: int
    source: str


class HealEnded(Event, frozen=True, kw_only=True):
    """The fetched state is loaded; `digest` is taken of it then."""

    step: int
    source: str
    digest: str | None = None


class HealServed(Event, frozen=True, kw_only=True):
    """The member gave its state away."""

    step: int
    destinations: tuple[str, ...] = ()


class Step(Event, frozen=True, kw_only=True):
    """One tried step. `digest` is of parameters and optimizer after the commit, None when none was due.

    `batch` is the number of the batch that it trained on, counted on the member's own shard of the data.
    `gradient_scale` is what an exchanged 1 of each contributor came back as: 1 when the mean is over just those who
    contributed. `rss_bytes` is the resident memory of the trainer process. None: not measured.
    """

    step: int
    committed: bool
    quorum_id: int
    participants: int
    healing: bool
    loss: float | None = None
    grad_norm: float | None = None
    tokens: int
    lr: float
    duration_s: float
    digest: str | None = None
    error: str | None = None
    batch: int | None = None
    gradient_scale: float | None = None
    rss_bytes: int | None = None


class FaultPointHit(Event, frozen=True, kw_only=True):
    """The trainer did to itself what it was ordered to; `order` is the lease it holds that under."""

    order: str
    point: str
    action: str
    step: int


class TrainerFinished(Event, frozen=True, kw_only=True):
    """The trainer ended in order."""

    step: int
    reason: str


class TrainerFailed(Event, frozen=True, kw_only=True):
    """The trainer ended by an error."""

    error: str


# From the controller.


class ControllerStarted(Event, frozen=True, kw_only=True):
    replicas: int


class LighthouseStarted(Event, frozen=True, kw_only=True):
    address: str = ""


class MemberAttached(Event, frozen=True, kw_only=True):
    """The controller reached the worker host of `name`."""

    name: str
    member_incarnation: int
    address: str
    attach_s: float


class TrainerSpawned(Event, frozen=True, kw_only=True):
    name: str
    member_incarnation: int
    spawn_s: float


class MemberLost(Event, frozen=True, kw_only=True):
    """The controller learned that a life is over."""

    name: str
    member_incarnation: int
    reason: str


class TrainerLost(Event, frozen=True, kw_only=True):
    """The controller told the others not to wait for a trainer: it had ended, was silent or was cut off from them."""

    name: str
    member_incarnation: int
    reason: str


class AttachFailed(Event, frozen=True, kw_only=True):
    """`retry_in_s` None: the controller gave this incarnation up."""

    name: str
    member_incarnation: int
    attempt: int
    error: str
    retry_in_s: float | None = None


class ControllerFinished(Event, frozen=True, kw_only=True):
    reason: str


class Unknown(Event, frozen=True, kw_only=True):
    """An event of a kind this version does not know, or one that does not fit its kind."""

    of_kind: str
    data: dict[str, Any]


AnyEvent = (
    RunStarted
    | PhaseStarted
    | PhaseFailed
    | FaultStarted
    | InjectionInForce
    | InjectionFailed
    | InjectionReverted
    | RevertFailed
    | FaultEnded
    | FaultMissed
    | SafetyBroken
    | RunEnded
    | MemberStarted
    | MemberExited
    | MemberWaits
    | Admission
    | EventsLost
    | BytesCarried
    | TrainerStarted
    | Quorum
    | HealStarted
    | HealEnded
    | HealServed
    | Step
    | FaultPointHit
    | TrainerFinished
    | TrainerFailed
    | ControllerStarted
    | LighthouseStarted
    | MemberAttached
    | TrainerSpawned
    | MemberLost
    | TrainerLost
    | AttachFailed
    | ControllerFinished
    | Unknown
)
