"""The past of a run, as far as judging it needs: lives of members, what they committed, and when faults struck.

A fold over events, kept by `History`. Times are those of the events (`t_s`), so that the order in which events of
different members arrived does not matter; events of one member arrive in their order.
What members did after drain began is left out: it counts against nobody.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from operator import attrgetter

from chaos.model.commits import Commit, Reach, Stretch, Tally, opens
from chaos.model.events import (
    Admission,
    AnyEvent,
    EventsLost,
    FaultMissed,
    FaultStarted,
    InjectionFailed,
    InjectionInForce,
    InjectionReverted,
    MemberStarted,
    MemberWaits,
    PhaseFailed,
    PhaseStarted,
    RevertFailed,
    RunEnded,
    RunStarted,
    SafetyBroken,
    Step,
    TrainerFinished,
    TrainerLost,
    TrainerStarted,
    Unknown,
)
from chaos.model.injections import Drop, Lethal
from chaos.model.lives import Absences, Hit, Life, Timeline
from chaos.model.steps import Steps

_time_s = attrgetter("t_s")


@dataclass(frozen=True)
class _Lookup:
    """What was worked out of the past as it stands, by member; the next event makes it void."""

    timelines: dict[str, Timeline] = field(default_factory=dict)
    absences: dict[str, Absences] = field(default_factory=dict)
    backs_s: dict[Hit, float] = field(default_factory=dict)
    moves: list[Tally] = field(default_factory=list)


@dataclass
class Past:
    """The fold. An event costs the same at the end of a long run as at its beginning, and so do the questions that
    monitors ask of each event: `kept`, `missing`, `blind_between`. The others are for the end of a run.
    """

    begun: RunStarted | None = None
    phases: dict[str, PhaseStarted] = field(default_factory=dict)
    phases_failed: list[PhaseFailed] = field(default_factory=list)
    started: dict[str, FaultStarted] = field(default_factory=dict)
    aimed: dict[str, frozenset[str]] = field(default_factory=dict)
    """Fault id -> the members it was aimed at, those on its nodes among them."""
    in_force: list[InjectionInForce] = field(default_factory=list)
    proofs: dict[str, list[InjectionInForce]] = field(default_factory=lambda: defaultdict(list))
    """Fault id -> the proofs of it in force."""
    hits: list[Hit] = field(default_factory=list)
    lives: dict[str, list[Life]] = field(default_factory=lambda: defaultdict(list))
    steps: Steps = field(default_factory=Steps)
    blind: list[EventsLost | Unknown] = field(default_factory=list)
    broken: SafetyBroken | None = None
    ended: RunEnded | None = None
    now_s: float = 0.0
    """The highest time that was told."""
    drain_s: float = inf
    """When drain began."""
    finished_s: float = inf
    """When the first trainer reached the last step of the job."""
    ordinary: bool = False
    """The newest event is an ordinary step: see `chaos.model.commits`."""
    open: dict[str, Stretch] = field(default_factory=dict)
    """Member -> its stretch that the next step may belong to. Whatever else the member tells ends it."""
    _reach: dict[str, Reach] = field(default_factory=lambda: defaultdict(Reach))
    """Member -> how far it had come when its open stretch began."""
    _residents_then: dict[str, dict[str, dict[str, Life | None]]] = field(default_factory=dict)
    """Fault id -> target -> the members that were hit with it, and the lives they lived when the fault started."""
    _hits: dict[str, dict[str, Hit]] = field(default_factory=lambda: defaultdict(dict))
    """Fault id -> member -> what it did to that."""
    _cut_off: list[TrainerLost] = field(default_factory=list)
    _blind_seqs: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _heard_in_drain: set[str] = field(default_factory=set)
    _lookup: _Lookup | None = None

    @property
    def baseline_s(self) -> float:
        """When every replica first trained; infinite before."""
        return self.phases["baseline"].t_s if "baseline" in self.phases else inf

    @property
    def until_s(self) -> float:
        """The end of the time that is judged: drain, the job's last step, or the newest event."""
        return min(self.drain_s, self.finished_s, self.now_s)

    @property
    def completed(self) -> bool:
        """The run went through its phases, whether they reached their aims or not."""
        return self.ended is not None and self.ended.completed and self.broken is None

    def go_on(self, stretches: Iterable[Stretch]) -> None:
        """These took in ordinary steps."""
        self.ordinary = True
        self._lookup = None
        self.now_s = max(self.now_s, *(stretch.last_s for stretch in stretches))

    def apply(self, event: AnyEvent) -> None:
        """Take in an event that is not an ordinary step."""
        self.ordinary = False
        self._lookup = None
        if event.t_s > self.now_s:
            self.now_s = event.t_s
        if event.member in self.open:
            self._close(event.member)
        self._apply(event)
        self._reach[event.member].take(event)

    def _close(self, member: str) -> None:
        """Whatever its member tells next is not ordinary."""
        self._reach[member].close(self.open.pop(member))

    def _apply(self, event: AnyEvent) -> None:
        match event:
            case Step() if event.t_s < self.drain_s:
                self._apply_step(event)
            case PhaseStarted(phase=phase):
                self.phases.setdefault(phase, event)
                if phase == "drain":
                    self._apply_drain()
            case PhaseFailed():
                self.phases_failed.append(event)
            case FaultStarted():
                self._apply_start(event)
            case InjectionInForce():
                self._apply_proof(event)
            case InjectionReverted() | RevertFailed():
                for hit in self.hits_by(event.fault_id):
                    if any(proof.injection == event.injection for proof in hit.proofs):
                        hit.ends.append(event)
            case SafetyBroken():
                self.broken = event
            case RunEnded():
                self.ended = event
            case RunStarted():
                self.begun = event
            case InjectionFailed() | FaultMissed() | MemberWaits() | Admission():
                pass
            case _ if event.t_s < self.drain_s:
                self._apply_member(event)
            case _:
                self._apply_in_drain(event)

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
        on_node: dict[str, Life | None] = {
            member: lives[-1] for member, lives in self.lives.items() if _node(lives) == target
        }
        return on_node or {target: lives[-1] if (lives := self.lives.get(target)) else None}

    def _apply_proof(self, event: InjectionInForce) -> None:
        self.in_force.append(event)
        self.proofs[event.fault_id].append(event)
        target = event.proof.member
        then = self._residents_then.get(event.fault_id, {}).get(target, {target: None})
        for member, life in then.items():
            hit = self._hits[event.fault_id].get(member)
            if hit is None:
                started = self.started.get(event.fault_id)
                struck = self._life_met(event) if member == target else life
                hit = Hit(event.fault_id, member, started.removes if started else True, struck)
                self._hits[event.fault_id][member] = hit
                self.hits.append(hit)
            hit.proofs.append(event)
            if hit.struck is not None and isinstance(event.injection, Lethal):
                hit.struck.doomed = event
        self._take_sides(event.fault_id)

    def _take_sides(self, fault_id: str) -> None:
        """A cut has two sides, and the job may go on with either: of those on the other one, whom it ended as cut off
        was hit instead of the targets, which then go on like everybody; as many as those are, and no more.
        """
        proofs = self.proofs[fault_id]
        others = {peer for one in proofs if isinstance(one.injection, Drop) for peer in one.injection.peers}
        targets = [hit for hit in self.hits_by(fault_id) if hit.member not in others]
        if not targets:
            return
        lost = [one for one in self._cut_off if one.name in others and targets[0].t_s <= one.t_s <= targets[0].due_s]
        for one in sorted(lost, key=_time_s)[: len(targets)]:
            hit = self._hits[fault_id].get(one.name)
            if hit is None:
                hit = Hit(fault_id, one.name, True, self._life_then(one.name, one.member_incarnation, one.t_s))
                self._hits[fault_id][one.name] = hit
                self.hits.append(hit)
            hit.proofs, hit.ends = list(proofs), [end for target in targets for end in target.ends]
            for target in targets:
                target.removes = False

    def _apply_step(self, event: Step) -> None:
        life = self.life_of(event)
        if not event.committed:
            life.discards.append(event)
            return
        stretch = life.commits.begin(self.steps.add(event), event.tokens, event.rss_bytes)
        if event.step in self.steps.contested:
            self._close_at(event.step)
        elif self.drain_s == inf and opens(event, self._reach[life.member], life.quorums[-1] if life.quorums else None):
            stretch.open(event)
            self.open[life.member] = stretch
            self.steps.open(stretch)

    def _close_at(self, step: int) -> None:
        """A step was committed in more than one quorum: what comes after it may deny it, so it is not ordinary."""
        for member in [member for member, stretch in self.open.items() if stretch.last == step]:
            self._close(member)

    def _apply_member(self, event: AnyEvent) -> None:
        match event:
            case EventsLost() | Unknown():
                self._lose(event)
                return
            case TrainerLost(reason="cut_off"):
                self._cut_off.append(event)
                for fault_id in list(self.proofs):
                    self._take_sides(fault_id)
            case TrainerFinished(reason="steps_reached", t_s=t_s):
                self.finished_s = min(self.finished_s, t_s)
            case _:
                pass
        self._life(event).take(event)

    def _apply_drain(self) -> None:
        self.drain_s = self.phases["drain"].t_s
        for member in list(self.open):
            self._close(member)

    def _apply_in_drain(self, event: AnyEvent) -> None:
        # A loss that is noticed at a member's first word in drain may reach back to before it.
        if isinstance(event, EventsLost) and event.member not in self._heard_in_drain:
            self._lose(event)
        self._heard_in_drain.add(event.member)

    def _lose(self, event: EventsLost | Unknown) -> None:
        self.blind.append(event)
        self._blind_seqs[event.member].append(event.seq)

    def life_of(self, event: Step) -> Life:
        """The life in which a step was tried."""
        lives = self.lives[event.member]
        return lives[-1] if lives and lives[-1].incarnation == event.incarnation else self._life(event)

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
        """The life that a proof names. Of several trainers in one pod it is the one that was there at the decision: the
        next one may be built before the death of the last is proven.
        """
        return self._life_then(proof.proof.member, proof.proof.incarnation, proof.decided_s)

    def _life_then(self, member: str, incarnation: int, t_s: float) -> Life | None:
        lives = [life for life in self.lives.get(member, []) if life.incarnation == incarnation]
        then = [life for life in lives if life.trainer is None or life.trainer.t_s <= t_s]
        met = then[-1:] or lives[:1]
        return met[0] if met else None

    def hits_by(self, fault_id: str) -> list[Hit]:
        """What a fault did to each member that it hit."""
        return list(self._hits.get(fault_id, {}).values())

    def lives_after(self, hit: Hit) -> list[Life]:
        """The lives in which a member can come back from a hit: the newer ones, and the one that it did not end."""
        lives = self.lives.get(hit.member, [])
        if hit.struck is None:
            return [life for life in lives if life.incarnation > hit.proofs[0].proof.incarnation]
        return lives[lives.index(hit.struck) + hit.lethal :]

    def commits_after(self, hit: Hit, until_s: float = inf) -> Iterator[tuple[Life, Commit]]:
        """What the member committed since it could be back, up to a time, and in which life.

        A replica that was stopped in the middle of a step finishes it when it goes on, long after its peers: that is no
        return, so only steps beyond those that they had committed by then count.
        """
        others = [self.timeline(member) for member in self.lives if member != hit.member and not hit.lethal]
        past_it = max((other.top(hit.due_s) for other in others), default=0)
        for life in self.lives_after(hit):
            for commit in life.commits_within(-inf if hit.lethal else hit.due_s, until_s):
                if commit.step > past_it:
                    yield life, commit

    def back_s(self, hit: Hit) -> float:
        """When the member was back from a hit, by its first commit since; infinite when it was not."""
        known = self._known.backs_s
        if hit not in known:
            known[hit] = next((commit.t_s for _, commit in self.commits_after(hit)), inf)
        return known[hit]

    def absences(self, member: str) -> Absences:
        """When faults had taken the member out."""
        known = self._known.absences
        if member not in known:
            hits = (hits[member] for hits in self._hits.values() if member in hits)
            known[member] = Absences((hit.t_s, self.back_s(hit)) for hit in hits if hit.removes)
        return known[member]

    def timeline(self, member: str) -> Timeline:
        """What a member tried in all its lives, to be looked up by time."""
        known = self._known.timelines
        if member not in known:
            known[member] = Timeline(self.lives.get(member, ()))
        return known[member]

    @property
    def _known(self) -> _Lookup:
        if self._lookup is None:
            self._lookup = _Lookup()
        return self._lookup

    def moves(self) -> list[Tally]:
        """The steps that were new to the whole job, in the order of time, as the first commit tells of them."""
        known = self._known
        if not known.moves:
            steps = self.steps.in_order()
            tops = accumulate((tally.step for tally in steps), max, initial=0)
            known.moves.extend(tally for tally, top in zip(steps, tops, strict=False) if tally.step > top)
        return known.moves

    def top(self, before_s: float) -> int:
        """The highest step that anyone committed before a time; 0 for none."""
        moves = self.moves()
        place = bisect_left(moves, before_s, key=_time_s)
        return moves[place - 1].step if place else 0

    def member_commits(self, member: str) -> list[Commit]:
        """What a member committed in all its lives, in order."""
        return [commit for life in self.lives.get(member, []) for commit in life.commits]

    def kept(self, step: int) -> list[Commit]:
        """The commits of a step, without one that died with its replica.

        A replica can finish a step that its peers, seeing it vanish, discard and train again in the next quorum. What
        it committed last is gone with it, or with its heal, so the second commit is neither a split nor a step back.
        """
        commits = self.steps.commits(step)
        if step not in self.steps.contested:
            return commits
        groups: dict[int, list[Commit]] = defaultdict(list)
        for commit in commits:
            groups[commit.quorum_id].append(commit)
        living = {quorum_id for quorum_id, group in groups.items() if not all(map(self._died, group))}
        return [commit for commit in commits if commit.quorum_id in living] if living else commits

    def _died(self, commit: Commit) -> bool:
        return any(life.died_with(commit) for life in self.lives[commit.member])

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
        seqs = self._blind_seqs.get(member, [])
        return bisect_right(seqs, after_seq) < bisect_left(seqs, before_seq)


def _blindness(event: EventsLost | Unknown) -> str:
    if isinstance(event, Unknown):
        return f"{event.member} told of {event.of_kind!r}, which this version cannot read"
    number = "events" if event.count is None else "1 event" if event.count == 1 else f"{event.count} events"
    return f"{number} of {event.member} did not arrive ({event.reason})"


def _node(lives: list[Life]) -> str | None:
    """Where a member is. A trainer that follows another one in the same incarnation lives where that one did."""
    return next((life.started.node for life in reversed(lives) if life.started), None)
