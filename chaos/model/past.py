"""The past of a run, as far as judging it needs: lives of members, what they committed, and when faults struck.

A fold over events, kept by `History`. Times are those of the events (`t_s`), so that the order in which events of
different members arrived does not matter; events of one member arrive in their order.
What members did after drain began is left out: it counts against nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
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
    MemberExited,
    MemberStarted,
    PhaseFailed,
    PhaseStarted,
    Quorum,
    RunEnded,
    RunStarted,
    SafetyBroken,
    Step,
    TrainerFailed,
    TrainerFinished,
    TrainerStarted,
    Unknown,
)


@dataclass
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
    heal_started: HealStarted | None = None
    heal_ended: HealEnded | None = None
    """The end of the last heal before its first commit."""
    heals: list[HealEnded] = field(default_factory=list)
    commits: list[Step] = field(default_factory=list)
    discards: list[Step] = field(default_factory=list)
    hit: InjectionInForce | None = None
    aimed_at: FaultStarted | None = None
    finished: TrainerFinished | None = None
    failed: TrainerFailed | None = None
    exited: MemberExited | None = None

    @property
    def over(self) -> bool:
        """It ended before its time, or a fault is about to end it."""
        return any((self.hit, self.aimed_at, self.failed, self.exited))

    def take(self, event: AnyEvent) -> None:
        match event:
            case MemberStarted():
                self.started = event
            case TrainerStarted():
                self.trainer = event
            case Quorum():
                self.quorum = self.quorum or event
            case HealStarted() if not self.commits:
                self.heal_started = event
            case HealEnded():
                self.heals.append(event)
                self.heal_ended = self.heal_ended if self.commits else event
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


@dataclass
class Past:
    """The fold. `commits` are the committed steps, by step in the order they arrived."""

    phases: dict[str, PhaseStarted] = field(default_factory=dict)
    phases_failed: dict[str, PhaseFailed] = field(default_factory=dict)
    started: dict[str, FaultStarted] = field(default_factory=dict)
    in_force: list[InjectionInForce] = field(default_factory=list)
    lives: dict[str, list[Life]] = field(default_factory=lambda: defaultdict(list))
    commits: dict[int, list[Step]] = field(default_factory=lambda: defaultdict(list))
    blind: list[EventsLost | Unknown] = field(default_factory=list)
    broken: SafetyBroken | None = None
    ended: RunEnded | None = None
    finished_s: float = inf
    """When the first trainer reached the last step of the job."""
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
            case FaultStarted(fault_id=fault_id):
                self.started[fault_id] = event
                for target in event.targets:
                    for life in self.lives[target][-1:]:
                        life.aimed_at = event
            case InjectionInForce():
                self.in_force.append(event)
                if struck := self.life_hit(event):
                    struck.hit = event
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

    def life_hit(self, hit: InjectionInForce) -> Life | None:
        """The life that an injection struck."""
        for life in reversed(self.lives.get(hit.proof.member, [])):
            built_later = life.trainer is not None and life.trainer.t_s > hit.t_s
            if life.incarnation == hit.proof.incarnation and not built_later:
                return life
        return None

    def lives_after(self, hit: InjectionInForce) -> list[Life]:
        """The lives of the member since the one that was hit."""
        lives = self.lives.get(hit.proof.member, [])
        struck = self.life_hit(hit)
        if struck is None:
            return [life for life in lives if life.incarnation > hit.proof.incarnation]
        return lives[lives.index(struck) + 1 :]

    def back(self, hit: InjectionInForce) -> Life | None:
        """The first life since the one that was hit which committed a step."""
        return next((life for life in self.lives_after(hit) if life.commits), None)

    def member_commits(self, member: str) -> list[Step]:
        """What a member committed in all its lives, in order."""
        return [commit for life in self.lives.get(member, []) for commit in life.commits]

    def kept(self, step: int) -> list[Step]:
        """The commits of a step, without one that died with its replica.

        A replica can finish a step that its peers, seeing it die, discard and train again in the next quorum. What it
        committed last is gone with it, so the second commit is neither a split nor a step back.
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
        return any(life.over and life.commits[-1:] == [commit] for life in self.lives[commit.member])

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
