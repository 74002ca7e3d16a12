"""History: what is known of a run at a point of its journal, as a fold over events.

The runner's triggers, the live view and the monitors all read it, so that they mean the same by alive, healing, and
committed by all. It keeps the newest state of each member and the steps not yet committed by everyone; what was is in
its `past`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from chaos.model.commits import Stretch
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
    frontier: int = 0
    """The highest step that any replica committed."""
    common_steps: int = 0
    newest_common_step: int = 0
    ended: bool = False
    in_force: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Fault id -> members it has hit."""
    past: Past = field(default_factory=Past)
    _committers: dict[int, int] = field(default_factory=dict)
    """Step -> the replicas that committed it, a bit for each."""
    _heals: dict[str, str] = field(default_factory=dict)
    """Healing member -> the member it heals from."""
    _quorum_id: int = -1
    _quorum_members: tuple[str, ...] = ()
    """The members of the newest quorum that was told of."""

    def __post_init__(self) -> None:
        self.members = {p.member: Member(p.member, p.role, p.node) for p in self.topology.placements}
        self._replicas = frozenset(self.topology.members("replica"))
        self._bits = {name: 1 << number for number, name in enumerate(sorted(self._replicas))}
        """Replica -> what it is among those who committed a step."""
        self._everyone = sum(self._bits.values())

    @property
    def now_s(self) -> float:
        return self.past.now_s

    @property
    def replicas(self) -> list[Member]:
        return [self.members[name] for name in sorted(self._replicas)]

    def spared(self, targets: tuple[str, ...]) -> list[Member]:
        """The replicas that are neither among the targets nor on a node among them, wherever they live by now."""
        return [one for one in self.replicas if one.name not in targets and one.node not in targets]

    def alive(self, target: str) -> bool:
        """Whether a member lives; a node always does."""
        return target not in self.members or self.members[target].alive

    def over(self, target: str, incarnation: int) -> bool:
        """Whether that life of the member is over."""
        member = self.members.get(target)
        return member is not None and (not member.alive or member.incarnation > incarnation)

    def holders(self, role: str) -> tuple[str, ...]:
        """The replicas that have a role of the moment, in their order."""
        match role:
            case "healing":
                return tuple(sorted(self._heals))
            case "donor":
                return tuple(sorted(set(self._heals.values()) & self._replicas))
            case "leader":
                return self._quorum_members[:1]
            case "store_owner":
                return tuple(name for name in self._quorum_members if name not in self._heals)[:1]
            case _:
                raise AssertionError(f"{role!r} is no role of the moment")

    def apply(self, event: AnyEvent) -> None:
        """Take one event in, in journal order."""
        if not self.go_on((event,)):
            self.turn(event)

    def turn(self, event: AnyEvent) -> None:
        """Take in an event that is not an ordinary step."""
        self.past.apply(event)
        member = self.members.get(event.member)
        match event:
            case Step() if member is not None:
                self._apply_step(member, event)
            case PhaseStarted(phase=phase):
                self.phase, self.phase_began_s, self.common_steps = phase, event.t_s, 0
                self._committers.clear()
            case InjectionInForce(fault_id=fault_id, proof=proof):
                self.in_force[fault_id] = (*self.in_force.get(fault_id, ()), proof.member)
            case RunEnded():
                self.ended = True
            case _ if member is not None:
                self._apply_member(member, event)
            case _:
                pass

    def _apply_member(self, member: Member, event: AnyEvent) -> None:
        match event:
            case MemberStarted(address=address, incarnation=incarnation, node=node):
                member.incarnation, member.address, member.activity = incarnation, address, Activity.STARTING
                member.node = node
            case MemberExited(incarnation=incarnation) if incarnation >= member.incarnation:
                member.activity = Activity.DOWN
                self._heals.pop(member.name, None)
            case TrainerStarted():
                member.activity = Activity.WAITING
            case Quorum(quorum_id=quorum_id, participants=participants, members=members):
                member.quorum_id, member.participants = quorum_id, participants
                if members is not None and quorum_id >= self._quorum_id:
                    self._quorum_id, self._quorum_members = quorum_id, members
            case HealStarted(source=source):
                member.activity = Activity.HEALING
                self._heals[member.name] = source
            case HealEnded(step=step):
                member.state_step = step
                self._heals.pop(member.name, None)
            case TrainerFinished() | TrainerFailed():
                member.activity = Activity.FINISHED
            case _:
                pass

    def go_on(self, events: Sequence[AnyEvent], place: int = 0) -> int:
        """Take in the ordinary steps from a place on, as most events are; the place of the first event that is none."""
        past, end = self.past, len(events)
        stretch_of, tally_of, bit_of = past.open.get, past.steps.tallies.get, self._bits.get
        committers, everyone = self._committers, self._everyone
        went_on: dict[str, Stretch] = {}
        while place < end:
            event = events[place]
            name = event.member
            stretch = stretch_of(name)
            if stretch is None or type(event) is not Step:
                break
            step = event.step
            peers = tally_of(step)
            if not stretch.take(event, peers):
                break
            if peers is None:
                past.steps.begin(event)
            went_on[name] = stretch
            by = committers[step] = committers.get(step, 0) | bit_of(name, 0)
            if by == everyone:
                self._complete(step)
            place += 1
        if went_on:
            past.go_on(went_on.values())
            for name, stretch in went_on.items():
                if (member := self.members.get(name)) is not None:  # It was training before.
                    member.state_step, member.loss = stretch.last, stretch.loss
                    if name in self._bits and stretch.last > self.frontier:
                        self.frontier = stretch.last
        return place

    def _apply_step(self, member: Member, event: Step) -> None:
        member.activity = Activity.TRAINING
        member.quorum_id, member.participants, member.loss = event.quorum_id, event.participants, event.loss
        if event.committed:
            self._commit(member, event.step)

    def _commit(self, member: Member, step: int) -> None:
        member.state_step = step
        bit = self._bits.get(member.name)
        if bit is None:
            return
        if step > self.frontier:
            self.frontier = step
        self._committers[step] = self._committers.get(step, 0) | bit
        if self._committers[step] == self._everyone:
            self._complete(step)

    def _complete(self, step: int) -> None:
        """Every replica has committed the step."""
        for done in [one for one in self._committers if one <= step]:
            del self._committers[done]
        unbroken = step == self.newest_common_step + 1
        self.common_steps = self.common_steps + 1 if unbroken else 1
        self.newest_common_step = step
