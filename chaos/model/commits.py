"""Commits, and the stretches of ordinary ones that most of a run is made of.

A commit is ordinary when it is just what was to be expected after the one before: the next step and the next batch of
the same life, in the same quorum, a sound update, and nothing else that its member told in between. Monitors that ask
only for what is out of the ordinary look at the first commit of each stretch, so that judging costs little more than
reading. What is ordinary is decided here alone; what is not sure to be, is not.

A run may have millions of commits, and few are ever looked at one by one. So they are kept in columns, life by life,
and a `Commit` is put together when it is asked for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from operator import attrgetter
from typing import overload

import msgspec

from chaos.model.events import AnyEvent, Quorum, Step


class Commit(msgspec.Struct, frozen=True, gc=False):
    """A committed step as a member reported it."""

    seq: int
    t_s: float
    member: str
    step: int
    quorum_id: int
    participants: int
    healing: bool
    digest: str | None


class Tally(msgspec.Struct, gc=False):
    """The commits of one step: how many, what the one that was told first says of it, and when they were made."""

    step: int
    quorum_id: int
    participants: int
    digest: str | None
    seq: int
    t_s: float
    """Of the commit that is the first in time."""
    last_s: float
    """When the last one was made."""
    ordinary_max: int
    """How many commits it may have before one more is not ordinary; 0 when they do not all tell the same."""
    commits: int = 1
    others: tuple[Commit, ...] = ()
    """Those that are not ordinary. Where there are none, all are alike, and each is of another member."""

    def take(self, commit: Step) -> None:
        self.commits += 1
        if commit.t_s < self.t_s:
            self.seq, self.t_s = commit.seq, commit.t_s
        elif commit.t_s > self.last_s:
            self.last_s = commit.t_s


class Commits(Sequence[Commit]):
    """The commits of one life, in the order they were told."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self.seqs: list[int] = []
        self.times_s = array("d")
        self.digests: list[str | None] = []
        self.rss_bytes: list[int | None] = []
        self.in_order = True
        """The member's clock never ran back."""
        self._places: list[int] = []
        """Where the stretches begin."""
        self._tops = [0]
        """The highest step before each stretch."""

    def __len__(self) -> int:
        return len(self.times_s)

    @overload
    def __getitem__(self, index: int) -> Commit: ...
    @overload
    def __getitem__(self, index: slice) -> list[Commit]: ...
    def __getitem__(self, index: int | slice) -> Commit | list[Commit]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return self.stretches[bisect_right(self._places, place) - 1].commit(place)

    def begin(self, commit: Commit, tokens: int = 0, rss_bytes: int | None = None) -> Stretch:
        """Take in a commit that is not ordinary."""
        if self.stretches:
            before = self.stretches[-1]
            self._tops.append(max(before.last, self._tops[-1]))
            self.in_order = self.in_order and before.last_s <= commit.t_s
        stretch = Stretch(self, len(self), commit, tokens, commit.step, commit.t_s)
        self.stretches.append(stretch)
        self._places.append(stretch.place)
        self.seqs.append(commit.seq)
        self.times_s.append(commit.t_s)
        self.digests.append(commit.digest)
        self.rss_bytes.append(rss_bytes)
        return stretch

    def top(self, before_s: float) -> int:
        """The highest step committed before a time, 0 for none. To be asked when they are in order."""
        place = bisect_left(self.times_s, before_s)
        if place == 0:
            return 0
        number = bisect_left(self._places, place) - 1
        stretch = self.stretches[number]
        return max(stretch.begin.step + place - 1 - stretch.place, self._tops[number])


def in_order(commits: Iterable[Commit]) -> Commits:
    """Commits in the order of time, each of them a stretch of its own."""
    ordered = Commits()
    for commit in sorted(commits, key=attrgetter("t_s")):
        ordered.begin(commit)
    return ordered


@dataclass(eq=False, slots=True)
class Stretch:
    """A commit and the ordinary ones after it, in one life, among whose commits they stand from `place` on.

    It is open while the next step may belong to it. `tokens` were trained in each.
    """

    commits: Commits
    place: int
    begin: Commit
    tokens: int
    last: int
    """The step of its newest commit."""
    last_s: float
    loss: float | None = None
    """Of the newest ordinary one."""
    incarnation: int = 0
    ahead: int = 0
    """By how much the number of its batches is ahead of the steps."""

    def __len__(self) -> int:
        return self.last - self.begin.step + 1

    @property
    def end(self) -> Commit:
        return self.commit(self.place + len(self) - 1)

    @property
    def own(self) -> list[Commit]:
        return [self.commit(place) for place in range(self.place, self.place + len(self))]

    def commit(self, place: int) -> Commit:
        """The one that stands at a place among all commits of the life."""
        begin = self.begin
        if place == self.place:
            return begin
        all_commits = self.commits
        return Commit(
            all_commits.seqs[place],
            all_commits.times_s[place],
            begin.member,
            begin.step + place - self.place,
            begin.quorum_id,
            begin.participants,
            begin.healing,
            all_commits.digests[place],
        )

    @property
    def times_s(self) -> array[float]:
        """In a row, to be gone through without a look at each commit."""
        return self.commits.times_s[self.place : self.place + len(self)]

    def open(self, event: Step) -> None:
        """Let ordinary commits follow on the one that it begins with."""
        assert event.batch is not None
        self.incarnation, self.ahead = event.incarnation, event.batch - event.step

    def take(self, event: Step, peers: Tally | None) -> bool:
        """Take a step in and be True, if it is an ordinary commit after the last one. To be asked of an open stretch.

        Most events of a run come by here, so all is written out in one place.
        """
        step, t_s, begin, loss, grad_norm = event.step, event.t_s, self.begin, event.loss, event.grad_norm
        if (
            step != self.last + 1
            or event.batch != step + self.ahead
            or t_s <= self.last_s
            or event.quorum_id != begin.quorum_id
            or event.participants != begin.participants
            or event.incarnation != self.incarnation
            or event.tokens != self.tokens
            or event.gradient_scale != 1.0
            or not event.committed
            or event.healing
            or loss is None
            or grad_norm is None
            or not isfinite(loss + grad_norm)
        ):
            return False
        if peers is not None:
            if (
                peers.commits >= peers.ordinary_max
                or event.digest != peers.digest
                or event.quorum_id != peers.quorum_id
                or event.participants != peers.participants
            ):
                return False
            peers.commits += 1
            if t_s > peers.last_s:
                peers.last_s = t_s
            elif t_s < peers.t_s:
                peers.t_s, peers.seq = t_s, event.seq
        commits = self.commits
        commits.seqs.append(event.seq)
        commits.times_s.append(t_s)
        commits.digests.append(event.digest if peers is None else peers.digest)
        commits.rss_bytes.append(event.rss_bytes)
        self.last, self.last_s, self.loss = step, t_s, loss
        return True


@dataclass(slots=True)
class Reach:
    """How far a member had come by its own words: nothing behind that is ordinary."""

    step: int = 0
    batch: float = -inf
    t_s: float = -inf

    def take(self, event: AnyEvent) -> None:
        if event.t_s > self.t_s:
            self.t_s = event.t_s
        if isinstance(event, Step) and event.committed:
            if event.step > self.step:
                self.step = event.step
            if event.batch is not None and event.batch > self.batch:
                self.batch = event.batch

    def close(self, stretch: Stretch) -> None:
        """Take in how far an open stretch had come."""
        self.t_s, self.step, self.batch = stretch.last_s, stretch.last, stretch.last + stretch.ahead

    def ends_before(self, event: Step) -> bool:
        """Whether a commit is new in all of it."""
        return event.step > self.step and event.t_s >= self.t_s and event.batch is not None and event.batch > self.batch


def opens(event: Step, reach: Reach, quorum: Quorum | None) -> bool:
    """Whether ordinary commits may follow on a commit; `quorum` is what its life told of last."""
    return (
        event.committed
        and not event.healing
        and event.gradient_scale == 1.0
        and event.loss is not None
        and event.grad_norm is not None
        and isfinite(event.loss + event.grad_norm)
        and reach.ends_before(event)
        and quorum is not None
        and quorum.quorum_id == event.quorum_id
        and quorum.members is not None
        and event.participants <= len(quorum.members)
    )
