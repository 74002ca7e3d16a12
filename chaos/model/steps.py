"""The steps of a run that were committed, each with the commits of all members.

Most are ordinary and alike, so they are only counted here and found in the stretches of their members when they are
asked for; those that are not ordinary are kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from operator import attrgetter

from chaos.model.commits import Commit, Stretch, Tally
from chaos.model.events import Step

_seq, _time_s = attrgetter("seq"), attrgetter("t_s")


class _Track:
    """The stretches of a member that were ever open. Each begins behind all that it had committed before."""

    def __init__(self) -> None:
        self._stretches: list[Stretch] = []
        self._firsts: list[int] = []

    def append(self, stretch: Stretch) -> None:
        self._stretches.append(stretch)
        self._firsts.append(stretch.begin.step)

    def find(self, step: int) -> Commit | None:
        """The ordinary commit of a step."""
        number = bisect_left(self._firsts, step) - 1
        if number < 0 or step > self._stretches[number].last:
            return None
        stretch = self._stretches[number]
        return stretch.commit(stretch.place + step - stretch.begin.step)


@dataclass
class Steps:
    """The fold over commits, ordinary or not."""

    tallies: dict[int, Tally] = field(default_factory=dict)
    contested: set[int] = field(default_factory=set)
    """Steps that were committed in more than one quorum."""
    uneven: set[int] = field(default_factory=set)
    """Steps of which not all commits tell the same, or more than they say take part; most steps need no closer look."""
    _tracks: dict[str, _Track] = field(default_factory=lambda: defaultdict(_Track))

    def __len__(self) -> int:
        return len(self.tallies)

    def begin(self, event: Step) -> Tally:
        """Take in the first commit of a step."""
        tally = self.tallies[event.step] = _tally(event)
        return tally

    def add(self, event: Step) -> Commit:
        """Take in a commit that is not ordinary."""
        tally = self.tallies.get(event.step)
        if tally is None:
            tally = self.begin(event)
        else:
            tally.take(event)
        same_quorum, same_digest = event.quorum_id == tally.quorum_id, event.digest == tally.digest
        if not same_quorum:
            self.contested.add(tally.step)
        same = same_quorum and same_digest and event.participants == tally.participants
        if not same or tally.commits > event.participants:
            self.uneven.add(tally.step)
            tally.ordinary_max = 0
        commit = Commit(
            event.seq,
            event.t_s,
            event.member,
            tally.step,
            event.quorum_id,
            event.participants,
            event.healing,
            tally.digest if same_digest else event.digest,  # One copy of a digest is enough for all.
        )
        tally.others = (*tally.others, commit)
        return commit

    def open(self, stretch: Stretch) -> None:
        """Ordinary commits may follow in a stretch."""
        self._tracks[stretch.begin.member].append(stretch)

    def ordinary(self, member: str, step: int) -> Commit | None:
        """The ordinary commit of a step by a member."""
        return self._tracks[member].find(step) if member in self._tracks else None

    def commits(self, step: int) -> list[Commit]:
        """The commits of a step, in the order they were told."""
        tally = self.tallies.get(step)
        if tally is None:
            return []
        found = list(tally.others)
        if len(found) < tally.commits:
            found += filter(None, [track.find(step) for track in self._tracks.values()])
            found.sort(key=_seq)
        return found

    def in_order(self) -> list[Tally]:
        """What the first commit in time tells of each step, in the order of time."""
        return sorted(map(self._first, self.tallies.values()), key=_time_s)

    def _first(self, tally: Tally) -> Tally:
        return _tally(min(self.commits(tally.step), key=_time_s)) if tally.step in self.uneven else tally


def _tally(commit: Commit | Step) -> Tally:
    return Tally(
        commit.step,
        commit.quorum_id,
        commit.participants,
        commit.digest,
        commit.seq,
        commit.t_s,
        commit.t_s,
        ordinary_max=commit.participants,
    )
