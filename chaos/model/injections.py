"""Injections: the closed set of primitive disturbances a platform can make.

Faults are built from these. Two kinds: `Delete`, `Evict` and `Signal` are one-shot, done once they are in force; what
derives `Held` lasts only while a lease on it is renewed. The author of a fault never writes an undo: whoever holds the
injection gives back what it took. Ranges stand in the types, so that a search can draw from them.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta


class Process(enum.Enum):
    """A process inside a member."""

    MAIN = "main"
    TRAINER = "trainer"


class Interface(enum.Enum):
    """A network interface by its role: control carries heartbeats, commands and heals; data carries gradients."""

    CONTROL = "control"
    DATA = "data"


class Direction(enum.Enum):
    """Which way packets go, as the target sees it."""

    IN = "in"
    OUT = "out"
    BOTH = "both"

    @property
    def ways(self) -> tuple[Direction, ...]:
        """In and out by themselves."""
        return (Direction.IN, Direction.OUT) if self is Direction.BOTH else (self,)


class Protocol(enum.Enum):
    TCP = "tcp"
    UDP = "udp"


Port = Annotated[int, Meta(ge=1, le=65535)]
Percent = Annotated[float, Meta(ge=0.01, le=100)]
Milliseconds = Annotated[float, Meta(gt=0, le=10_000)]
BitRate = Annotated[int, Meta(ge=8_000, le=32_000_000_000)]
Rail = Annotated[int, Meta(ge=0, le=63)]
"""An RDMA port of a target, counted in the order of its devices' names."""

LEASE_TTL_S = 3.0
"""How long platforms hold an injection that is not renewed."""


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """End a member at once, with every process in it, as if its pod were lost. In force: its main process is gone."""

    member: str


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """Send a signal to one process of a member; the rest of the member lives on. In force: that process is gone, for
    which it has `grace_s`.
    """

    member: str
    process: Process
    signal: int
    grace_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0


class Evict(msgspec.Struct, frozen=True, tag="evict"):
    """Ask a member to end: SIGTERM to its main process, and `grace_s` later the end of all its processes, as if a node
    were emptied. In force: its main process is gone.
    """

    member: str
    grace_s: Annotated[float, Meta(ge=0, le=3600)]


class Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every held injection has: `target` is the name of a member or a node."""

    target: str


class Freeze(Held, frozen=True, tag="freeze"):
    """Every process of the target stops where it is. In force: the freezer, or each process, says so."""


class FreezeKubelet(Held, frozen=True, tag="freeze_kubelet"):
    """The kubelet of a node stops where it is: it starts, ends and tells nothing, while what runs there runs on.

    In force: every thread of it is stopped.
    """


class NodeDown(Held, frozen=True, tag="node_down"):
    """A node dies: all its members at once, and their links. Nothing is started on it until this ends.

    In force: the main process of each of its members is gone, and their links or the node's have no carrier.
    """


class Drain(Held, frozen=True, tag="drain"):
    """A node is emptied: its members are asked to end as by `Evict` and started on other nodes, and none comes to it
    until this ends. In force: the main process of each member that was on it is gone.
    """


class Launch(Held, frozen=True, tag="launch"):
    """A member `on_demand` is started, and ends with this. In force: its trainer says that it runs. Undone: no process
    of it is left.
    """


class NoNames(Held, frozen=True, tag="no_names"):
    """In the target the `names` of other members (none: all of them) do not resolve; what is connected stays so.

    The names that are left keep the addresses of now. In force: a look-up of the first one fails.
    """

    names: tuple[str, ...] = ()


class LinkDown(Held, frozen=True, tag="link_down"):
    """One interface of the target loses its link. In force: no carrier. Addresses and routes are there afterwards."""

    interface: Interface


class Drop(Held, frozen=True, tag="drop"):
    """`percent` of the target's packets vanish: those from or to `peers` (names; none: everyone), and of these only
    `protocol` and `ports` (at either end) where given. Ends in the kernel by itself. In force: its rules are read back.
    """

    peers: tuple[str, ...] = ()
    direction: Direction = Direction.BOTH
    protocol: Protocol | None = None
    ports: tuple[Port, ...] = ()
    percent: Percent = 100.0


class Spread(enum.Enum):
    """How delays lie around their middle; `jitter_ms` is the deviation of a normal one."""

    UNIFORM = "uniform"
    NORMAL = "normal"
    PARETO = "pareto"


class Shape(Held, frozen=True, tag="shape"):
    """What the target sends (or gets: `direction`) on one interface is held to a rate, and its packets are delayed by
    `delay_ms` +- `jitter_ms`, lost, doubled, damaged or sent ahead of others that wait.

    Losses come in bursts of `loss_burst` packets on average where that is given, else one by one. Of several on one
    interface the worst of each counts. In force: the queue is read back, but for the spread, which the kernel keeps.
    """

    interface: Interface
    rate_bit_s: BitRate | None = None
    delay_ms: Milliseconds | None = None
    jitter_ms: Milliseconds | None = None
    spread: Spread = Spread.UNIFORM
    loss_percent: Percent | None = None
    loss_burst: Annotated[float, Meta(ge=1, le=1000)] | None = None
    duplicate_percent: Percent | None = None
    corrupt_percent: Percent | None = None
    reorder_percent: Percent | None = None
    direction: Direction = Direction.OUT

    def __post_init__(self) -> None:
        if not self.rate_bit_s and not needs_netem(self):
            raise ValueError("shape needs rate_bit_s, delay_ms, loss_percent or another share of packets")
        if self.direction is Direction.BOTH:
            raise ValueError("shape has one direction, in or out: make two of it")
        if self.spread is not Spread.UNIFORM and self.jitter_ms is None:
            raise ValueError(f"spread {self.spread.value} needs jitter_ms")
        if self.reorder_percent is not None and self.delay_ms is None:
            raise ValueError("reorder_percent needs delay_ms: packets are sent ahead of those that wait")
        if self.loss_burst is not None and (self.loss_percent is None or self.loss_percent >= 100):
            raise ValueError("loss_burst needs a loss_percent below 100")
        _check_delay(self.delay_ms, self.jitter_ms)


def _check_delay(delay_ms: float | None, jitter_ms: float | None) -> None:
    if jitter_ms is not None and jitter_ms > (delay_ms or 0):
        raise ValueError(f"jitter_ms {jitter_ms} must not exceed delay_ms {delay_ms}")
    if (delay_ms or 0) + (jitter_ms or 0) > LEASE_TTL_S * 1000:
        said = f"delay_ms {delay_ms:g}" + (f" +- {jitter_ms:g}" if jitter_ms else "")
        raise ValueError(f"{said} is longer than the lease of {LEASE_TTL_S:g} s that holds it; type less")


class PortDown(Held, frozen=True, tag="port_down"):
    """RDMA ports of the target go down, by the net device of each: the one of a `rail`, or all.

    In force: the RDMA device says of each port that it is down.
    """

    rail: Rail | None = None


class PortShape(Held, frozen=True, tag="port_shape"):
    """What leaves by RDMA ports of the target is delayed or lost, where the kernel sends it (soft RoCE).

    A card sends past the kernel's queues: refused. In force: the queue of each port's net device is read back.
    """

    rail: Rail | None = None
    delay_ms: Milliseconds | None = None
    jitter_ms: Milliseconds | None = None
    loss_percent: Percent | None = None

    def __post_init__(self) -> None:
        if self.delay_ms is None and self.loss_percent is None:
            raise ValueError("port_shape needs delay_ms or loss_percent")
        _check_delay(self.delay_ms, self.jitter_ms)


class PortGone(Held, frozen=True, tag="port_gone"):
    """Net devices of RDMA ports, such as VFs, leave the target's namespace, and come back with all they had.

    In force: the target has neither the net device nor a port that leads to one.
    """

    rail: Rail | None = None


class CpuLimit(Held, frozen=True, tag="cpu_limit"):
    """The target's processes share `cores` of CPU time. In force: the quota is read back."""

    cores: Annotated[float, Meta(ge=0.01, le=1024)]


class MemoryLimit(Held, frozen=True, tag="memory_limit"):
    """The target's memory is limited to `limit_bytes`, or to `share_of_used` of what it uses now; exactly one is set.

    With `kill` the kernel ends processes that need more; else they are held up until the limit is gone, and a limit
    below what the kernel can take back is refused. In force: the limit is read back.
    """

    limit_bytes: Annotated[int, Meta(ge=1 << 20)] | None = None
    share_of_used: Annotated[float, Meta(gt=0, le=1)] | None = None
    kill: bool = False

    def __post_init__(self) -> None:
        if (self.limit_bytes is None) == (self.share_of_used is None):
            raise ValueError("memory_limit needs exactly one of limit_bytes and share_of_used")


class IoLimit(Held, frozen=True, tag="io_limit"):
    """The target reads and writes its disk at `bytes_s` at most, each way. In force: the limit is read back.

    With version 1 cgroups the kernel holds back direct and synchronous I/O only, not what goes through its cache.
    """

    bytes_s: Annotated[int, Meta(ge=1024, le=100_000_000_000)]


class ProcessLimit(Held, frozen=True, tag="process_limit"):
    """The target may start `more` processes and threads than it has now, no other. In force: the limit is read back."""

    more: Annotated[int, Meta(ge=0, le=1_000_000)]
    most: Annotated[int, Meta(ge=0)] | None = None
    """What that comes to, once it is known."""


class DiskFill(Held, frozen=True, tag="disk_fill"):
    """The file system below the target's folder is full but for `leave_bytes`. In force: no more is free."""

    leave_bytes: Annotated[int, Meta(ge=0)]


class Point(enum.Enum):
    """A named point in what a trainer does, in the order of a step; the last three are not in every step."""

    IN_DATALOAD = "in_dataload"
    IN_FORWARD = "in_forward"
    BEFORE_ALLREDUCE = "before_allreduce"
    IN_ALLREDUCE = "in_allreduce"
    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT = "after_commit"
    IN_HEAL = "in_heal"
    IN_SERVE = "in_serve"
    IN_CHECKPOINT = "in_checkpoint"


class Action(enum.Enum):
    """What a trainer does to itself at a point."""

    PAUSE = "pause"
    """Stay there until the lease ends."""
    DELAY = "delay"
    """Stay there for `delay_s`, each time."""
    ERROR = "error"
    """Fail what is done there, as the library underneath would."""
    NAN = "nan"
    """Put a NaN into the own gradient."""
    FLIP_GRADIENT = "flip_gradient"
    """Flip one bit of the own gradient."""
    FLIP_WEIGHT = "flip_weight"
    """Flip one bit of a weight."""
    HOLD_GIL = "hold_gil"
    """Hold Python's lock for `delay_s`: nothing written in Python goes on in that process."""
    LIE = "lie"
    """Say the opposite of the truth in the commit vote."""
    CORRUPT = "corrupt"
    """Damage what is written there."""


class FaultPoint(Held, frozen=True, tag="fault_point"):
    """A trainer harms itself at `point`, at most `times` times; it forgets that when the lease is not renewed.

    In force: the trainer says that it has the order. That it struck is an event of its own.
    """

    point: Point
    action: Action
    delay_s: Annotated[float, Meta(gt=0, le=60)] | None = None
    times: Annotated[int, Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        if (self.delay_s is None) == (self.action in (Action.DELAY, Action.HOLD_GIL)):
            raise ValueError(f"{self.action.value} {'needs' if self.delay_s is None else 'takes no'} delay_s")


OneShot = Delete | Evict | Signal
NodeInjection = NodeDown | Drain
PortInjection = PortDown | PortShape | PortGone
GroupInjection = CpuLimit | MemoryLimit | IoLimit | ProcessLimit
KernelInjection = Freeze | FreezeKubelet | LinkDown | Drop | Shape | PortInjection | GroupInjection | DiskFill
HeldInjection = KernelInjection | NodeInjection | Launch | NoNames | FaultPoint
Injection = OneShot | HeldInjection
Lethal = OneShot | NodeInjection
"""What ends every life that it hits."""


OF_THE_JOB = frozenset({"fault_points"})
"""Capabilities that the job has and not the platform."""


def needs(injection: Injection) -> frozenset[str]:
    """The capabilities that platform and job must have for an injection."""
    match injection:
        case LinkDown():
            return frozenset({"links"})
        case Shape():
            return frozenset({"links", "netem"} if needs_netem(injection) else {"links"})
        case PortDown(rail=rail) | PortGone(rail=rail):
            return frozenset({"rdma", *rails(rail)})
        case PortShape(rail=rail):
            return frozenset({"rdma", "netem", *rails(rail)})
        case Drop():
            return frozenset({"links", "nft"})
        case Launch():
            return frozenset({"launch"})
        case NoNames():
            return frozenset({"names"})
        case CpuLimit():
            return frozenset({"cgroup.cpu"})
        case MemoryLimit():
            return frozenset({"cgroup.memory"})
        case IoLimit():
            return frozenset({"cgroup.io"})
        case ProcessLimit():
            return frozenset({"cgroup.pids"})
        case DiskFill():
            return frozenset({"disk"})
        case FaultPoint():
            return frozenset({"fault_points"})
        case Freeze():
            return frozenset({"freeze"})
        case FreezeKubelet():
            return frozenset({"kubelet"})
        case NodeDown():
            return frozenset({"links"})
        case Drain():
            return frozenset({"moves"})
        case Delete() | Evict() | Signal():
            return frozenset()


def rails(rail: int | None) -> tuple[str, ...]:
    """The capability to have a rail of that number, where one is asked for."""
    return () if rail is None else (f"rail {rail}",)


def needs_netem(shape: Shape) -> bool:
    """Whether it does more than hold to a rate."""
    harm = (shape.loss_percent, shape.duplicate_percent, shape.corrupt_percent, shape.reorder_percent)
    return any((shape.delay_ms, *harm))


class Proof(msgspec.Struct, frozen=True):
    """What was read back to say that an injection is in force.

    `incarnation` is the life of the member that was hit; `evidence` is one short sentence.
    """

    member: str
    incarnation: int
    evidence: str
