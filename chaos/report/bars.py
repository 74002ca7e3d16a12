"""Recovery by its phases, as bars: of each victim the way back, of those that a fault left the way to the next commit.

The marks are those of `chaos.model.recovery`; each part lasts from one mark to the next, so that the parts make the
whole. Of very many bars the longest are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from chaos.model.past import Past
from chaos.model.plan import Plan
from chaos.model.recovery import survival, way_back
from chaos.model.wording import span

BARS_MAX = 16

PARTS = {
    "held": "held by the fault",
    "failed_step": "until a step failed",
    "exit": "until it was gone",
    "restart": "restart",
    "boot": "trainer built",
    "join": "joins a quorum",
    "requorum": "new quorum",
    "heal_wait": "waits to heal",
    "transfer": "loads the state",
    "first_commit": "first commit",
}
"""The parts that a bar may have, and their words."""


@dataclass(frozen=True)
class Part:
    name: str
    lasted_s: float

    @property
    def said(self) -> str:
        return f"{PARTS[self.name]} {span(self.lasted_s)} s"


@dataclass(frozen=True)
class Bar:
    """One way back, or the wait of those who stayed. `seq` is the event of its hit."""

    who: str
    fault: str
    seq: int
    lasted_s: float
    parts: tuple[Part, ...]


Marks = list[tuple[str, float | None]]


def bars(plan: Plan, past: Past) -> tuple[list[Bar], int]:
    """The longest in the order of their hits, and how many there are in all."""
    every = [*_victims(plan, past), *_survivors(plan, past)]
    longest = sorted(every, key=lambda bar: -bar.lasted_s)[:BARS_MAX]
    return sorted(longest, key=lambda bar: bar.seq), len(every)


def _victims(plan: Plan, past: Past) -> Iterator[Bar]:
    """Replicas that were taken out and came back before they were hit again."""
    for hit in past.hits:
        found = next(past.commits_after(hit), None)
        if not hit.removes or hit.member not in plan.replicas() or found is None:
            continue
        life, commit = found
        if past.absences(hit.member).next_s(hit.t_s) < commit.t_s:
            continue
        way = way_back(hit, life, commit)
        marks: Marks = [("held", hit.due_s if hit.held and hit.due_s <= commit.t_s else None)]
        marks += [("exit", way.gone.t_s if way.gone else None)]
        marks += [("restart", way.respawned.t_s if way.respawned else None)]
        marks += [("boot", way.built.t_s if way.built else None)]
        marks += [("join", way.joined.t_s if way.joined else None)]
        marks += [("heal_wait", way.healing.t_s if way.healing else None)]
        marks += [("transfer", way.healed.t_s if way.healed else None), ("first_commit", commit.t_s)]
        fault = _named(hit.fault_id, past)
        yield Bar(hit.member, fault, hit.seq, commit.t_s - hit.t_s, tuple(_parts(hit.t_s, marks)))


def _survivors(plan: Plan, past: Past) -> Iterator[Bar]:
    """The slowest of the replicas that a fault left."""
    for fault_id, proofs in past.proofs.items():
        hit = min(proofs, key=lambda one: one.t_s)
        victims = {one.member for one in past.hits_by(fault_id) if one.removes}
        left = [
            name for name in plan.replicas() if name not in victims and not past.absences(name).touch(hit.t_s, hit.t_s)
        ]
        nexts = {name: after for name in left if (after := past.timeline(name).split(hit.t_s)[1])}
        if not nexts:
            continue
        slowest = max(nexts, key=lambda name: nexts[name].t_s)
        commit = nexts[slowest]
        signs = survival([slowest], hit, commit.t_s, past)
        marks: Marks = [("failed_step", signs.failed.t_s if signs.failed else None)]
        marks += [("requorum", signs.quorum.t_s if signs.quorum else None), ("first_commit", commit.t_s)]
        fault = _named(fault_id, past)
        yield Bar(f"{slowest}, not hit", fault, hit.seq, commit.t_s - hit.t_s, tuple(_parts(hit.t_s, marks)))


def _parts(begin_s: float, marks: Marks) -> Iterator[Part]:
    """From each mark that was seen to the next; one that came before its time lasts no time."""
    for name, t_s in marks:
        if t_s is not None and begin_s < t_s < inf:
            yield Part(name, t_s - begin_s)
            begin_s = t_s


def _named(fault_id: str, past: Past) -> str:
    """What the fault is; its id when its start was not seen."""
    return past.started[fault_id].fault if fault_id in past.started else fault_id
