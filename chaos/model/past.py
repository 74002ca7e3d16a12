"""The past of a run, as far as judging it needs: lives of members, what they committed, and when faults struck.

A fold over events, kept by `History`. Times are those of the events (`t_s`), so that the order in which events of
different members arrived does not matter; events of one member arrive in their order.
What members did after drain began is left out: it counts against nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from math import inf

from chaos.model.events import (
    AnyEvent,
    EventsLost,
    FaultMissed,
    FaultStarted,
    HealEnded,
    HealStarted,
    InjectionFailed,
    InjectionInForce,
    InjectionReverted,
    MemberExited,
    MemberStarted,
    PhaseFailed,
    PhaseStarted,
    Quorum,
    RevertFailed,
    RunEnded,
    RunStarted,
    SafetyBroken,
    Step,
    TrainerFailed,
    TrainerFinished,
    TrainerStarted,
    Unknown,
)
from chaos.model.injections import Drain, Held, Lethal


@dataclass(eq=False)
class Life:
    """One trainer's life in one incarnation of a member; for members without a trainer, the incarnation itself.

    Fields hold the events that mark it, None where none was seen.
    """

    member: str
    incarnation: int
    started: MemberStarted | None = None
    trainer: TrainerStarted | None = None
    quorum: Quorum | None = None
    """Its first quorum."""
    heals_started: list[HealStarted] = field(default_factory=list)
    heals: list[HealEnded] = field(default_factory=list)
    commits: list[Step] = field(default_factory=list)
    discards: list[Step] = field(default_factory=list)
    doomed: FaultStarted | InjectionInForce | None = None
    """A fault that ends it was started."""
    finished: TrainerFinished | None = None
    failed: TrainerFailed | None = None
    exited: MemberExited | None = None

    @property
    def over(self) -> bool:
        """It ended before its time, or a fault is about to end it."""
        return any((self.doomed, self.failed, self.exited))

    def take(self, event: AnyEvent) -> None:
        match event:
            case MemberStarted():
                self.started = event
            case TrainerStarted():
                self.trainer = event
            case Quorum():
                self.quorum = self.quorum or event
            case HealStarted():
                self.heals_started.append(event)
            case HealEnded():
                self.heals.append(event)
            case Step():
                (self.commits if event.committed else self.discards).append(event)
            case TrainerFinished():
                self.finished = event
            case TrainerFailed():
                self.failed = event
            case MemberExited():
                self.exited = event
            case _:
                pass


@dataclass(eq=False)
class Hit:
    """What one fault did to one member, from its first proof in force to its last end.

    A fault of a node hits every member that lived there when it started. `struck` is the life it met, None when that
    was not seen; `removes` tells a fault that may take the member out of the quorum.
    """

    fault_id: str
    member: str
    removes: bool
    struck: Life | None
    proofs: list[InjectionInForce] = field(default_factory=list)
    ends: list[InjectionReverted | RevertFailed] = field(default_factory=list)

    @property
    def t_s(self) -> float:
        return self.proofs[0].t_s

    @property
    def seq(self) -> int:
        return self.proofs[0].seq

    @property
    def lethal(self) -> bool:
        """It ends the life that it met, so that only a newer one can come back."""
        return any(isinstance(proof.injection, Lethal) for proof in self.proofs)

    @property
    def held(self) -> bool:
        """The member cannot come back before the fault has ended; a drained node keeps nobody from other nodes."""
        return any(
            isinstance(proof.injection, Held) and not isinstance(proof.injection, Drain) for proof in self.proofs
        )

    @property
    def due_s(self) -> float:
        """From when on the member has to come back: the hit, or the end of a fault that is held; infinite before."""
        if not self.held:
            return self.t_s
        return max(end.t_s for end in self.ends) if len(self.ends) >= len(self.proofs) else inf

    def wait_s(self, until_s: float) -> float:
        """How long the way back took: from when it was due, or from the hit when it was back before that."""
        return until_s - (self.due_s if self.due_s <= until_s else self.t_s)


@dataclass
class Past:
    """The fold. `commits` are the committed steps, by step in the order they arrived."""

    phases: dict[str, PhaseStarted] = field(default_factory=dict)
    phases_failed: dict[str, PhaseFailed] = field(default_factory=dict)
    started: dict[str, FaultStarted] = field(default_factory=dict)
    aimed: dict[str, frozenset[str]] = field(default_factory=dict)
    """Fault id -> the members it was aimed at, those on its nodes among them."""
    in_force: list[InjectionInForce] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    lives: dict[str, list[Life]] = field(default_factory=lambda: defaultdict(list))
    commits: dict[int, list[Step]] = field(default_factory=lambda: defaultdict(list))
    blind: list[EventsLost | Unknown] = field(default_factory=list)
    broken: SafetyBroken | None = None
    ended: RunEnded | None = None
    finished_s: float = inf
    """When the first trainer reached the last step of the job."""
    _residents_then: dict[str, dict[str, dict[str, Life | None]]] = field(default_factory=dict)
    """Fault id -> target -> the members that were hit with it, and the lives they lived when the fault started."""
    _now_s: float = 0.0
    _heard_in_drain: set[str] = field(default_factory=set)

    @property
    def drain_s(self) -> float:
        """When drain began; infinite before."""
        return self.phases["drain"].t_s if "drain" in self.phases else inf

    @property
    def until_s(self) -> float:
        """The end of the time that is judged: drain, the job's last step, or the newest event."""
        return min(self.drain_s, self.finished_s, self._now_s)

    @property
    def completed(self) -> bool:
        """The run went through its phases, whether they reached their aims or not."""
        return self.ended is not None and self.ended.completed and self.broken is None

    def apply(self, event: AnyEvent) -> None:
        self._now_s = max(self._now_s, event.t_s)
        match event:
            case PhaseStarted(phase=phase):
                self.phases.setdefault(phase, event)
            case PhaseFailed(phase=phase):
                self.phases_failed[phase] = event
            case FaultStarted():
                self._apply_start(event)
            case InjectionInForce():
                self._apply_proof(event)
            case InjectionReverted() | RevertFailed():
                for hit in self.hits:
                    if hit.fault_id == event.fault_id and any(p.injection == event.injection for p in hit.proofs):
                        hit.ends.append(event)
            case SafetyBroken():
                self.broken = event
            case RunEnded():
                self.ended = event
            case RunStarted() | InjectionFailed() | FaultMissed():
                pass
            case _ if event.t_s < self.drain_s:
                self._apply_member(event)
            case _:
                self._apply_drain(event)

    def _apply_start(self, event: FaultStarted) -> None:
        self.started[event.fault_id] = event
        residents = {target: self._residents(target) for target in event.targets}
        self._residents_then[event.fault_id] = residents
        self.aimed[event.fault_id] = frozenset(member for members in residents.values() for member in members)
        if any(isinstance(injection, Lethal) for injection in event.injections):
            for life in (life for members in residents.values() for life in members.values() if life):
                life.doomed = event

    def _residents(self, target: str) -> dict[str, Life | None]:
        """The members on a node with their newest lives; for what is no node, itself."""
        newest = {member: lives[-1] for member, lives in self.lives.items() if lives}
        on_node: dict[str, Life | None] = {
            member: life for member, life in newest.items() if life.started and life.started.node == target
        }
        return on_node or {target: newest.get(target)}

    def _apply_proof(self, event: InjectionInForce) -> None:
        self.in_force.append(event)
        target = event.proof.member
        then = self._residents_then.get(event.fault_id, {}).get(target, {target: None})
        for member, life in then.items():
            known = next((hit for hit in self.hits if (hit.fault_id, hit.member) == (event.fault_id, member)), None)
            if known is None:
                started = self.started.get(event.fault_id)
                struck = self._life_met(event) if member == target else life
                known = Hit(event.fault_id, member, started.removes if started else True, struck)
                self.hits.append(known)
            known.proofs.append(event)
            if known.struck is not None and isinstance(event.injection, Lethal):
                known.struck.doomed = event

    def _apply_member(self, event: AnyEvent) -> None:
        match event:
            case EventsLost() | Unknown():
                self.blind.append(event)
                return
            case Step(committed=True, step=step):
                self.commits[step].append(event)
            case TrainerFinished(reason="steps_reached", t_s=t_s):
                self.finished_s = min(self.finished_s, t_s)
            case _:
                pass
        self._life(event).take(event)

    def _apply_drain(self, event: AnyEvent) -> None:
        # A loss that is noticed at a member's first word in drain may reach back to before it.
        if isinstance(event, EventsLost) and event.member not in self._heard_in_drain:
            self.blind.append(event)
        self._heard_in_drain.add(event.member)

    def _life(self, event: AnyEvent) -> Life:
        lives = self.lives[event.member]
        for life in reversed(lives):
            begins_anew = isinstance(event, MemberStarted) or (isinstance(event, TrainerStarted) and life.trainer)
            if life.incarnation == event.incarnation and not begins_anew:
                return life
        lives.append(Life(event.member, event.incarnation))
        newest = lives[-1]
        lives.sort(key=lambda one: one.incarnation)
        return newest

    def _life_met(self, proof: InjectionInForce) -> Life | None:
        """The life that a proof names."""
        for life in reversed(self.lives.get(proof.proof.member, [])):
            built_later = life.trainer is not None and life.trainer.t_s > proof.t_s
            if life.incarnation == proof.proof.incarnation and not built_later:
                return life
        return None

    def lives_after(self, hit: Hit) -> list[Life]:
        """The lives in which a member can come back from a hit: the newer ones, and the one that it did not end."""
        lives = self.lives.get(hit.member, [])
        if hit.struck is None:
            return [life for life in lives if life.incarnation > hit.proofs[0].proof.incarnation]
        return lives[lives.index(hit.struck) + hit.lethal :]

    def commits_after(self, hit: Hit) -> Iterator[tuple[Life, Step]]:
        """What the member committed since it could be back, and in which life.

        A replica that was stopped in the middle of a step finishes it when it goes on, long after its peers: that is no
        return, so only steps beyond those that they had committed by then count.
        """
        past_it = 0 if hit.lethal else self._frontier_of_others(hit)
        for life in self.lives_after(hit):
            for commit in life.commits:
                if hit.lethal or (commit.t_s >= hit.due_s and commit.step > past_it):
                    yield life, commit

    def _frontier_of_others(self, hit: Hit) -> int:
        """The highest step that others had committed when the member could be back."""
        return max(
            (
                step
                for step, commits in self.commits.items()
                if any(one.member != hit.member and one.t_s < hit.due_s for one in commits)
            ),
            default=0,
        )

    def back_s(self, hit: Hit) -> float:
        """When the member was back from a hit, by its first commit since; infinite when it was not."""
        return next((commit.t_s for _, commit in self.commits_after(hit)), inf)

    def absences(self, member: str) -> list[tuple[float, float]]:
        """From when to when faults had taken the member out; infinite when it did not come back."""
        return [(hit.t_s, self.back_s(hit)) for hit in self.hits if hit.member == member and hit.removes]

    def member_commits(self, member: str) -> list[Step]:
        """What a member committed in all its lives, in order."""
        return [commit for life in self.lives.get(member, []) for commit in life.commits]

    def kept(self, step: int) -> list[Step]:
        """The commits of a step, without one that died with its replica.

        A replica can finish a step that its peers, seeing it vanish, discard and train again in the next quorum. What
        it committed last is gone with it, or with its heal, so the second commit is neither a split nor a step back.
        """
        commits = self.commits.get(step, [])
        groups: dict[int, list[Step]] = defaultdict(list)
        for commit in commits:
            groups[commit.quorum_id].append(commit)
        if len(groups) < 2:
            return commits
        living = {quorum_id for quorum_id, group in groups.items() if not all(map(self._died_with, group))}
        return [commit for commit in commits if commit.quorum_id in living] if living else commits

    def _died_with(self, commit: Step) -> bool:
        """Whether nothing was built on a commit: its life ended with it, or went on from a peer's state."""
        for life in self.lives[commit.member]:
            following = next((one for one in life.commits if one.t_s > commit.t_s), None)
            if commit in life.commits and following is None:
                return life.over
            if commit in life.commits and following is not None:
                return any(commit.t_s < heal.t_s <= following.t_s for heal in life.heals)
        return False

    def missing(self, members: Collection[str]) -> str | None:
        """What was not seen though it matters to whoever watches `members`, as the beginning of a sentence."""
        for event in self.blind:
            if event.member in members or event.member not in self.lives:
                return _blindness(event)
        if self.broken is not None:
            return f"{self.broken.monitor} broke and ended the run early"
        if self.ended is None:
            return "the journal stops before the run's end"
        return None if self.ended.completed else f"the run was broken off ({self.ended.reason})"

    def blind_between(self, member: str, after_seq: int, before_seq: float = inf) -> bool:
        """Whether something of `member` was lost between two of its events."""
        return any(event.member == member and after_seq < event.seq < before_seq for event in self.blind)


def _blindness(event: EventsLost | Unknown) -> str:
    if isinstance(event, Unknown):
        return f"{event.member} told of {event.of_kind!r}, which this version cannot read"
    number = "events" if event.count is None else "1 event" if event.count == 1 else f"{event.count} events"
    return f"{number} of {event.member} did not arrive ({event.reason})"
