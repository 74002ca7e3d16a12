"""Commits, and the stretches of ordinary ones that most of a run is made of.

A commit is ordinary when it is just what was to be expected after the one before: the next step and the next batch of
the same life, in the same quorum, a sound update, and nothing else that its member told in between. Monitors that ask
only for what is out of the ordinary look at the first commit of each stretch, so that judging costs little more than
reading. What is ordinary is decided here alone; what is not sure to be, is not.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from math import inf, isfinite

import msgspec

from chaos.model.events import AnyEvent, Quorum, Step


class Commit(msgspec.Struct, frozen=True, gc=False):
    """A committed step as a member reported it: what is asked of all commits of a run, which may be millions."""

    seq: int
    t_s: float
    member: str
    step: int
    quorum_id: int
    participants: int
    healing: bool
    digest: str | None


@dataclass(eq=False, slots=True)
class Stretch:
    """A commit and the ordinary ones after it, in one life. It is `open` while the next step may belong to it."""

    member: str
    tokens: int
    """Trained in each step."""
    last: Step
    commits: list[Commit]
    """Those of the whole life; its own begin at `at`."""
    at: int
    times_s: array[float]
    """When its own were made: in a row, to be gone through without a look at each commit."""

    @property
    def own(self) -> list[Commit]:
        return self.commits[self.at : self.at + len(self.times_s)]

    @property
    def begin(self) -> Commit:
        return self.commits[self.at]

    @property
    def end(self) -> Commit:
        return self.commits[self.at + len(self.times_s) - 1]

    def leads_to(self, event: Step) -> bool:
        """Whether a step is an ordinary commit after the last one. To be asked of an open stretch."""
        last = self.last
        return (
            event.step == last.step + 1
            and event.t_s > last.t_s
            and event.incarnation == last.incarnation
            and event.quorum_id == last.quorum_id
            and event.participants == last.participants
            and event.tokens == self.tokens
            and event.batch is not None
            and last.batch is not None
            and event.batch == last.batch + 1
            and _is_sound(event)
        )


@dataclass(slots=True)
class Reach:
    """How far a member had come by its own words: nothing behind that is ordinary."""

    step: int = 0
    batch: float = -inf
    t_s: float = -inf

    def take(self, event: AnyEvent) -> None:
        self.t_s = max(self.t_s, event.t_s)
        if isinstance(event, Step) and event.committed:
            self.step = max(self.step, event.step)
            self.batch = max(self.batch, self.batch if event.batch is None else event.batch)

    def ends_before(self, event: Step) -> bool:
        """Whether a commit is new in all of it."""
        return event.step > self.step and event.t_s >= self.t_s and event.batch is not None and event.batch > self.batch


def opens(event: Step, reach: Reach, quorum: Quorum | None) -> bool:
    """Whether ordinary commits may follow on a commit; `quorum` is what its life told of last."""
    return (
        _is_sound(event)
        and reach.ends_before(event)
        and quorum is not None
        and quorum.quorum_id == event.quorum_id
        and quorum.members is not None
        and event.participants <= len(quorum.members)
    )


def _is_sound(event: Step) -> bool:
    """Whether it was committed as every step should be: by a contributor, of finite numbers, exactly averaged."""
    return (
        event.committed
        and not event.healing
        and event.gradient_scale == 1.0
        and event.loss is not None
        and event.grad_norm is not None
        and isfinite(event.loss + event.grad_norm)
    )
