"""Lives of members, what was committed in them, and the hits they took: what a run's `Past` is made of."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from operator import attrgetter

from chaos.model.commits import Commit, Stretch
from chaos.model.events import (
    AnyEvent,
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

_time_s = attrgetter("t_s")


@dataclass(eq=False)
class Life:
    """One trainer's life in one incarnation of a member; for members without a trainer, the incarnation itself.

    Fields hold the events that mark it, None where none was seen. Commits and discards are in the order of time,
    and every commit is in one of the stretches.
    """

    member: str
    incarnation: int
    started: MemberStarted | None = None
    trainer: TrainerStarted | None = None
    quorums: list[Quorum] = field(default_factory=list)
    heals_started: list[HealStarted] = field(default_factory=list)
    heals: list[HealEnded] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
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
        for index in range(bisect_left(self.commits, since_s, key=_time_s), len(self.commits)):
            if self.commits[index].t_s > until_s:
                return
            yield self.commits[index]

    def died_with(self, commit: Commit) -> bool:
        """Whether it made a commit on which nothing was built: it ended there, or went on from a peer's state."""
        if commit not in self.commits_within(commit.t_s, commit.t_s):
            return False
        following = bisect_right(self.commits, commit.t_s, key=_time_s)
        if following == len(self.commits):
            return self.over
        return any(commit.t_s < heal.t_s <= self.commits[following].t_s for heal in self.heals)


class Timeline:
    """What a member tried in all its lives, in the order of time, to be looked up by time."""

    def __init__(self, lives: Iterable[Life]) -> None:
        lives = tuple(lives)
        self.commits = [commit for life in lives for commit in life.commits]
        self.times_s = array("d")
        self._rises: list[tuple[int, int]] = []
        """Stretches: the place of its first commit, and its first step less that place."""
        self._tops = [0]
        """The highest step before each stretch, and at last of all."""
        self._discards_s = sorted(discard.t_s for life in lives for discard in life.discards)
        stretches = [stretch for life in lives for stretch in life.stretches]
        self.in_order = all(one.end.t_s <= later.begin.t_s for one, later in pairwise(stretches))
        """The member's clock never ran back from one stretch to the next."""
        if self.in_order:
            for stretch in stretches:
                self._append(stretch.begin.step, stretch.times_s)
        else:
            self.commits.sort(key=_time_s)
            for commit in self.commits:
                self._append(commit.step, (commit.t_s,))

    def _append(self, first: int, times_s: Sequence[float]) -> None:
        self._rises.append((len(self.times_s), first - len(self.times_s)))
        self._tops.append(max(self._tops[-1], first + len(times_s) - 1))
        self.times_s.extend(times_s)

    def split(self, at_s: float) -> tuple[Commit | None, Commit | None]:
        """The last commit up to a time, and the first one after it."""
        index = bisect_right(self.times_s, at_s)
        last, first = self.commits[max(0, index - 1) : index], self.commits[index : index + 1]
        return last[0] if last else None, first[0] if first else None

    def digested_within(self, since_s: float, until_s: float) -> Iterator[Commit]:
        """The commits of a time that tell a digest, both ends included."""
        for index in range(bisect_left(self.times_s, since_s), bisect_right(self.times_s, until_s)):
            if self.commits[index].digest is not None:
                yield self.commits[index]

    def top(self, before_s: float) -> int:
        """The highest step committed before a time; 0 for none."""
        index = bisect_left(self.times_s, before_s)
        if index == 0:
            return 0
        number = bisect_left(self._rises, (index,)) - 1
        return max(self._tops[number], self._rises[number][1] + index - 1)

    def discards(self, since_s: float, until_s: float) -> int:
        """How many steps were tried in vain in a time, both ends included."""
        return bisect_right(self._discards_s, until_s) - bisect_left(self._discards_s, since_s)


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
