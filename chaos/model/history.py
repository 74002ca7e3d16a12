"""History: what is known of a run at a point of its journal, as a fold over events.

The runner's triggers, the live view and the monitors all read it, so that they mean the same by alive, healing, and
committed by all. It keeps the newest state of each member and the steps not yet committed by everyone; what was is in
its `past`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from chaos.model.events import (
    AnyEvent,
    HealEnded,
    HealStarted,
    InjectionInForce,
    MemberExited,
    MemberStarted,
    PhaseStarted,
    Quorum,
    RunEnded,
    Step,
    TrainerFailed,
    TrainerFinished,
    TrainerStarted,
)
from chaos.model.past import Past
from chaos.model.topology import Topology


class Activity(enum.Enum):
    """What a replica is doing."""

    DOWN = "down"
    STARTING = "starting"
    WAITING = "waiting"
    HEALING = "healing"
    TRAINING = "training"
    FINISHED = "finished"


@dataclass
class Member:
    """The newest known state of one member."""

    name: str
    role: str
    node: str
    incarnation: int = 0
    activity: Activity = Activity.DOWN
    address: str = ""
    state_step: int = 0
    quorum_id: int | None = None
    participants: int = 0
    loss: float | None = None
    last_commit_t_s: float | None = None

    @property
    def alive(self) -> bool:
        return self.activity is not Activity.DOWN


@dataclass
class History:
    """The fold. `common_steps`: how many steps in a row, up to the newest, every replica committed in this phase."""

    topology: Topology
    members: dict[str, Member] = field(init=False)
    phase: str = ""
    phase_began_s: float = 0.0
    now_s: float = 0.0
    frontier: int = 0
    """The highest step that any replica committed."""
    common_steps: int = 0
    newest_common_step: int = 0
    ended: bool = False
    in_force: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Fault id -> members it has hit."""
    past: Past = field(default_factory=Past)
    _committers: dict[int, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members = {p.member: Member(p.member, p.role, p.node) for p in self.topology.placements}
        self._replicas = frozenset(self.topology.members("replica"))

    @property
    def replicas(self) -> list[Member]:
        return [self.members[name] for name in sorted(self._replicas)]

    def apply(self, event: AnyEvent) -> None:
        """Take one event in, in journal order."""
        self.now_s = max(self.now_s, event.t_s)
        self.past.apply(event)
        match event:
            case PhaseStarted(phase=phase):
                self.phase, self.phase_began_s, self.common_steps = phase, event.t_s, 0
                self._committers.clear()
            case InjectionInForce(fault_id=fault_id, proof=proof):
                self.in_force[fault_id] = (*self.in_force.get(fault_id, ()), proof.member)
            case RunEnded():
                self.ended = True
            case _ if event.member in self.members:
                self._apply_member(self.members[event.member], event)
            case _:
                pass

    def _apply_member(self, member: Member, event: AnyEvent) -> None:
        match event:
            case MemberStarted(address=address, incarnation=incarnation):
                member.incarnation, member.address, member.activity = incarnation, address, Activity.STARTING
            case MemberExited(incarnation=incarnation) if incarnation >= member.incarnation:
                member.activity = Activity.DOWN
            case TrainerStarted():
                member.activity = Activity.WAITING
            case Quorum(quorum_id=quorum_id, participants=participants):
                member.quorum_id, member.participants = quorum_id, participants
            case HealStarted():
                member.activity = Activity.HEALING
            case HealEnded(step=step):
                member.state_step = step
            case Step():
                self._apply_step(member, event)
            case TrainerFinished() | TrainerFailed():
                member.activity = Activity.FINISHED
            case _:
                pass

    def _apply_step(self, member: Member, event: Step) -> None:
        member.activity = Activity.TRAINING
        member.quorum_id, member.participants, member.loss = event.quorum_id, event.participants, event.loss
        if not event.committed:
            return
        member.state_step, member.last_commit_t_s = event.step, event.t_s
        self.frontier = max(self.frontier, event.step)
        committers = self._committers.setdefault(event.step, set())
        committers.add(member.name)
        if committers == self._replicas:
            for step in [s for s in self._committers if s <= event.step]:
                del self._committers[step]
            unbroken = event.step == self.newest_common_step + 1
            self.common_steps = self.common_steps + 1 if unbroken else 1
            self.newest_common_step = event.step
