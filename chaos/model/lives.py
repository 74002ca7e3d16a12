"""Lives of members, what was committed in them, and the hits they took: what a run's `Past` is made of."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, pairwise
from math import inf
from operator import attrgetter
from typing import TypeVar

from chaos.model.commits import Commit, Commits, Stretch, in_order
from chaos.model.events import (
    AnyEvent,
    Event,
    FaultStarted,
    HealEnded,
    HealStarted,
    InjectionInForce,
    InjectionReverted,
    MemberExited,
    MemberStarted,
    Quorum,
    RevertFailed,
    Step,
    TrainerFailed,
    TrainerFinished,
    TrainerStarted,
)
from chaos.model.injections import Drain, Held, Lethal

E = TypeVar("E", bound=Event)
_time_s = attrgetter("t_s")


@dataclass(eq=False)
class Life:
    """One trainer's life in one incarnation of a member; for members without a trainer, the incarnation itself.

    Fields hold the events that mark it, None where none was seen. Commits and discards are in the order of time.
    """

    member: str
    incarnation: int
    started: MemberStarted | None = None
    trainer: TrainerStarted | None = None
    quorums: list[Quorum] = field(default_factory=list)
    heals_started: list[HealStarted] = field(default_factory=list)
    heals: list[HealEnded] = field(default_factory=list)
    commits: Commits = field(default_factory=Commits)
    discards: list[Step] = field(default_factory=list)
    doomed: FaultStarted | InjectionInForce | None = None
    """A fault that ends it was started."""
    finished: TrainerFinished | None = None
    failed: TrainerFailed | None = None
    exited: MemberExited | None = None

    @property
    def stretches(self) -> list[Stretch]:
        return self.commits.stretches

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
                self.quorums.append(event)
            case HealStarted():
                self.heals_started.append(event)
            case HealEnded():
                self.heals.append(event)
            case TrainerFinished():
                self.finished = event
            case TrainerFailed():
                self.failed = event
            case MemberExited():
                self.exited = event
            case _:
                pass

    def commits_within(self, since_s: float, until_s: float = inf) -> Iterator[Commit]:
        """The commits of a time, both ends included."""
        times_s = self.commits.times_s
        for place in range(bisect_left(times_s, since_s), len(times_s)):
            if times_s[place] > until_s:
                return
            yield self.commits[place]

    def died_with(self, commit: Commit) -> bool:
        """Whether it made a commit on which nothing was built: it ended there, or went on from a peer's state."""
        if commit not in self.commits_within(commit.t_s, commit.t_s):
            return False
        times_s = self.commits.times_s
        following = bisect_right(times_s, commit.t_s)
        if following == len(times_s):
            return self.over
        return any(commit.t_s < heal.t_s <= times_s[following] for heal in self.heals)


class Timeline:
    """What a member tried in all its lives, in the order of time, to be looked up by time."""

    def __init__(self, lives: Sequence[Life]) -> None:
        self.parts = [life.commits for life in lives if life.commits]
        """Its commits, one part after the other."""
        told_in_order = all(one.times_s[-1] <= later.times_s[0] for one, later in pairwise(self.parts))
        if not told_in_order or not all(part.in_order for part in self.parts):
            self.parts = [in_order(chain.from_iterable(self.parts))]
        self._lives = lives
        self._begins_s = [part.times_s[0] for part in self.parts]
        self._tops = list(accumulate((part.top(inf) for part in self.parts), max, initial=0))
        """The highest step before each part, and at last of all."""

    def split(self, at_s: float) -> tuple[Commit | None, Commit | None]:
        """The last commit up to a time, and the first one after it."""
        number = bisect_right(self._begins_s, at_s) - 1
        if number < 0:
            return None, self.parts[0][0] if self.parts else None
        part = self.parts[number]
        place = bisect_right(part.times_s, at_s)
        following = part[place : place + 1] or [later[0] for later in self.parts[number + 1 : number + 2]]
        return part[place - 1], following[0] if following else None

    def digested_within(self, since_s: float, until_s: float) -> Iterator[Commit]:
        """The commits of a time that tell a digest, both ends included."""
        for part in self.parts[max(0, bisect_left(self._begins_s, since_s) - 1) :]:
            for place in range(bisect_left(part.times_s, since_s), bisect_right(part.times_s, until_s)):
                if part.digests[place] is not None:
                    yield part[place]

    def top(self, before_s: float) -> int:
        """The highest step committed before a time; 0 for none."""
        number = bisect_left(self._begins_s, before_s) - 1
        return 0 if number < 0 else max(self._tops[number], self.parts[number].top(before_s))

    def discards(self, since_s: float, until_s: float) -> int:
        """How many steps were tried in vain in a time, both ends included."""
        return bisect_right(self._discards, until_s, key=_time_s) - bisect_left(self._discards, since_s, key=_time_s)

    def first_discard(self, since_s: float, until_s: float) -> Step | None:
        """The first step that was tried in vain in a time, both ends included."""
        return _first(self._discards, since_s, until_s)

    def first_quorum(self, since_s: float, until_s: float) -> Quorum | None:
        """The first quorum that was new to its life in a time, both ends included."""
        return _first(self._quorums, since_s, until_s)

    @cached_property
    def _discards(self) -> list[Step]:
        return sorted((discard for life in self._lives for discard in life.discards), key=_time_s)

    @cached_property
    def _quorums(self) -> list[Quorum]:
        firsts = [quorum for life in self._lives for quorum in life.quorums[:1]]
        told = (pairwise(life.quorums) for life in self._lives)
        changes = [later for pairs in told for one, later in pairs if one.quorum_id != later.quorum_id]
        return sorted([*firsts, *changes], key=_time_s)


def _first(told: list[E], since_s: float, until_s: float) -> E | None:
    place = bisect_left(told, since_s, key=_time_s)
    return told[place] if place < len(told) and told[place].t_s <= until_s else None


class Absences:
    """From when to when faults had taken a member out; infinite when it did not come back."""

    def __init__(self, times_s: Iterable[tuple[float, float]]) -> None:
        self.times_s = sorted(times_s)
        self._sinces_s = [since_s for since_s, _ in self.times_s]
        self._backs_s = list(accumulate((back_s for _, back_s in self.times_s), max))
        """When it was back from each and all before it."""

    def touch(self, since_s: float, until_s: float) -> bool:
        """Whether it was away at any time of a time, both ends included."""
        number = bisect_right(self._sinces_s, until_s)
        return number > 0 and self._backs_s[number - 1] > since_s

    def next_s(self, after_s: float) -> float:
        """When it was next taken out after a time; infinite when it was not."""
        number = bisect_right(self._sinces_s, after_s)
        return self._sinces_s[number] if number < len(self._sinces_s) else inf


@dataclass(eq=False)
class Hit:
    """What one fault did to one member, from its first proof in force to its last end.

    A fault of a node hits every member that lived there when it started. `struck` is the life it met, None when that
    was not seen; `removes` tells that it may take the member out of the quorum.
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
