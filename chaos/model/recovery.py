"""Recovery by its phases, of those whom a fault left and of those whom it took, the same for every fault.

Survivors, from the fault being in force: the first step that failed, the new quorum, the next commit. Effects may be
seen before their proof, so marks count from the decision on and are said to have come at 0 s.

A victim, each phase from the end of the one before: gone, respawned, its trainer built, in a quorum, heal begun, state
loaded, first commit. A fault that is held keeps its victim away: the way back begins when that ends. What did not
happen is None: not every fault kills, and not everyone who comes back has to heal.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from chaos.model.commits import Commit
from chaos.model.events import (
    Event,
    HealEnded,
    HealStarted,
    InjectionInForce,
    MemberExited,
    MemberStarted,
    Quorum,
    Step,
    TrainerStarted,
)
from chaos.model.lives import Hit, Life
from chaos.model.past import Past

E = TypeVar("E", bound=Event)
_time_s = attrgetter("t_s")


@dataclass(frozen=True)
class Survival:
    """What one fault meant for replicas that it left: the first sign of each kind, of any of them."""

    in_force_s: float
    failed: Step | None
    quorum: Quorum | None

    @property
    def failed_step_s(self) -> float | None:
        return _since(self.in_force_s, self.failed)

    @property
    def requorum_s(self) -> float | None:
        return _since(self.in_force_s, self.quorum)


def survival(survivors: Iterable[str], hit: InjectionInForce, until_s: float, past: Past) -> Survival:
    """The signs from the fault's decision up to a time; `hit` is its first proof in force."""
    timelines = [past.timeline(survivor) for survivor in survivors]
    failed = [timeline.first_discard(hit.decided_s, until_s) for timeline in timelines]
    quorums = [timeline.first_quorum(hit.decided_s, until_s) for timeline in timelines]
    return Survival(hit.t_s, _first(failed), _first(quorums))


@dataclass(frozen=True)
class WayBack:
    """How a member that was hit came back: the life it came back in, up to the commit that ended its absence."""

    hit: Hit
    life: Life
    commit: Commit
    gone: MemberExited | None
    respawned: MemberStarted | None
    built: TrainerStarted | None
    joined: Quorum | None
    healing: HealStarted | None
    healed: HealEnded | None

    @property
    def recovery_s(self) -> float:
        return self.hit.wait_s(self.commit.t_s)

    @property
    def reborn(self) -> bool:
        return self.life is not self.hit.struck

    @property
    def marks(self) -> tuple[Event, ...]:
        """The events that show it, in order."""
        marks = (self.respawned, self.built, self.joined, self.healing, self.healed)
        return tuple(mark for mark in marks if mark is not None)

    def phases(self) -> dict[str, float | None]:
        """Seconds of each phase. The first four make the whole; the others are parts of respawn and heal."""
        due_s = self.commit.t_s - self.recovery_s
        built_s = self.built.t_s if self.built else due_s
        healed_s = max(self.healed.t_s, due_s) if self.healed else built_s
        left_s = due_s if self.hit.held or self.gone is None else self.gone.t_s
        return {
            "recovery_s": self.recovery_s,
            "respawn_s": _since(due_s, self.built),
            "heal_s": _since(built_s, self.healed),
            "first_commit_s": _since(healed_s, self.commit),
            "exit_s": _since(self.hit.t_s, self.gone),
            "restart_s": _since(left_s, self.respawned) if self.gone else None,
            "boot_s": _since(self.respawned.t_s, self.built) if self.respawned else None,
            "join_s": _since(built_s, self.joined),
            "heal_wait_s": _since(self.joined.t_s, self.healing) if self.joined else None,
            "transfer_s": _since(self.healing.t_s, self.healed) if self.healing else None,
        }


def way_back(hit: Hit, life: Life, commit: Commit) -> WayBack:
    """The marks on the way from a hit to a commit of a life that came after it, or went on after it."""
    reborn = life is not hit.struck
    since_s = hit.due_s if hit.due_s <= commit.t_s else hit.t_s
    joined = life.quorums if reborn else _within(life.quorums, since_s, commit.t_s)
    healed = _within(life.heals, hit.t_s, commit.t_s)
    healing = [one for one in life.heals_started if healed and one.t_s <= healed[-1].t_s]
    return WayBack(
        hit,
        life,
        commit,
        gone=hit.struck.exited if hit.struck and reborn else None,
        respawned=life.started if reborn else None,
        built=life.trainer if reborn else None,
        joined=joined[0] if joined else None,
        healing=healing[-1] if healing else None,
        healed=healed[-1] if healed else None,
    )


def _within(told: list[E], since_s: float, until_s: float) -> list[E]:
    """Of events in the order of time those of a time, both ends included."""
    if not told or told[-1].t_s < since_s or told[0].t_s > until_s:  # As in most lives, which were at another time.
        return []
    return told[bisect_left(told, since_s, key=_time_s) : bisect_right(told, until_s, key=_time_s)]


def _first(told: list[E | None]) -> E | None:
    return min(filter(None, told), key=_time_s, default=None)


def _since(begin_s: float, end: Event | Commit | None) -> float | None:
    return max(0.0, end.t_s - begin_s) if end is not None else None
