"""`survivors_continue`: the replicas that were not hit go on training, soon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from math import inf, nextafter
from operator import sub
from typing import ClassVar

from chaos.api import (
    Absences,
    Finding,
    History,
    Limits,
    Monitor,
    Outcome,
    Past,
    Seconds,
    Survival,
    counted,
    events,
    listed,
    span,
    survival,
)


class SurvivorsContinueLimits(Limits, frozen=True):
    """Thresholds of `survivors_continue`."""

    gap_s_max: Seconds = 30.0
    """From a fault being in force to a survivor's next commit, and between any two commits of a replica not hit."""


@dataclass(frozen=True)
class _Gap:
    """A replica's wait for a commit. `closed`: the commit came; `excused`: it no longer had to."""

    member: str
    since_s: float
    until_s: float
    closed: bool
    excused: bool = False
    blind: bool = False
    evidence: tuple[int, ...] = ()

    @property
    def lasted_s(self) -> float:
        return self.until_s - self.since_s


@dataclass(frozen=True)
class _Aftermath:
    """What one fault meant for its survivors; `hit` is its first proof in force."""

    hit: events.InjectionInForce
    targets: tuple[str, ...]
    step: int
    gaps: tuple[_Gap, ...]
    discards: tuple[int, ...]
    """Steps tried in vain until the last survivor's next commit, for each survivor."""
    signs: Survival

    @property
    def waits_s(self) -> list[float]:
        """Waits that ended with a commit; when there is none, those that did not."""
        return [gap.lasted_s for gap in self.gaps if gap.closed] or [gap.lasted_s for gap in self.gaps]

    @property
    def first_s(self) -> float:
        return min(self.waits_s)

    @property
    def last_s(self) -> float:
        return max(self.waits_s)

    @property
    def said(self) -> str:
        return f"{listed(self.targets)} {'was' if len(self.targets) == 1 else 'were'} hit at step {self.step}"


class SurvivorsContinue(Monitor[SurvivorsContinueLimits]):
    """After a fault every replica that it did not take out commits again within `gap_s_max`.

    A replica that was hit by what removes nobody is a survivor like the others: it may be slow, not away.
    This is what fault tolerance per step is for: a lost replica must cost seconds and a discarded step, not a restart
    of the whole job. While the survivors wait, every healthy GPU of the job is idle.
    """

    name: ClassVar[str] = "survivors_continue"
    safety: ClassVar[bool] = False
    limits: ClassVar[type[Limits]] = SurvivorsContinueLimits

    def conclude(self, history: History) -> Finding:
        past = history.past
        absences = {replica: past.absences(replica) for replica in self.plan.replicas()}
        aftermaths = list(_aftermaths(absences, past))
        judged = [aftermath for aftermath in aftermaths if aftermath.gaps]
        waits = [gap for aftermath in judged for gap in aftermath.gaps]
        everyday = [gap for replica in absences for gap in _between_commits(replica, absences[replica], past)]
        worst = max(judged, key=lambda aftermath: aftermath.last_s, default=None)
        measures: dict[str, float | int | str | None] = {
            "fault_step": worst.step if worst else None,
            "failed_step_s": worst.signs.failed_step_s if worst else None,
            "requorum_s": worst.signs.requorum_s if worst else None,
            "gap_s": worst.last_s if worst else None,
            "first_gap_s": worst.first_s if worst else None,
            "uncommitted_steps": sum(max(aftermath.discards) for aftermath in judged),
            "uncommitted_tries": sum(sum(aftermath.discards) for aftermath in judged),
            "largest_gap_s": max((gap.lasted_s for gap in everyday), default=None),
        }
        late = list(filter(self._late, waits)) or list(filter(self._late, everyday))
        if late:
            longest = max(late, key=lambda gap: gap.lasted_s)
            return self.finding(Outcome.FAIL, self._said_late(longest, judged), measures, longest.evidence)
        if doubt := self._doubt(aftermaths, waits, everyday, past):
            return self.finding(Outcome.UNKNOWN, doubt, measures)
        if worst is None:
            longest_s = max(gap.lasted_s for gap in everyday)
            reading = f"no fault was planned; no replica waited more than {span(longest_s)} s for a commit"
            return self.finding(Outcome.PASS, reading, measures)
        evidence = [worst.hit.seq, *(seq for gap in worst.gaps for seq in gap.evidence)]
        return self.finding(Outcome.PASS, _said(worst, len(judged)), measures, evidence)

    def _late(self, gap: _Gap) -> bool:
        return gap.lasted_s > self.limit.gap_s_max and not gap.blind

    def _doubt(self, aftermaths: list[_Aftermath], waits: list[_Gap], everyday: list[_Gap], past: Past) -> str | None:
        """Why nothing can be said; None when it can."""
        if missing := past.missing(self.plan.replicas()):
            return missing
        if not everyday:
            return "no replica committed twice"
        if self.plan.faults and not aftermaths:
            return "no fault was in force"
        if aftermaths and not waits:
            return "no replica was left that had to go on"
        waiting = sorted({gap.member for gap in waits if not gap.closed and not gap.excused})
        return f"the run ended before the next commit of {listed(waiting)}" if waiting else None

    def _said_late(self, gap: _Gap, judged: list[_Aftermath]) -> str:
        limit = f"(at most {self.limit.gap_s_max:g})"
        for aftermath in judged:
            if gap in aftermath.gaps:
                return f"{gap.member} did not commit for {span(gap.lasted_s)} s after {aftermath.said} {limit}"
        return f"{gap.member} did not commit for {span(gap.lasted_s)} s from {gap.since_s:.1f} s on {limit}"


def _aftermaths(absences: dict[str, Absences], past: Past) -> Iterator[_Aftermath]:
    """What each fault meant for the replicas that it did not take out and that were there."""
    for fault_id, proofs in past.proofs.items():
        hit = min(proofs, key=lambda one: one.t_s)
        targets = tuple(dict.fromkeys(proof.proof.member for proof in proofs))
        victims = {one.member for one in past.hits_by(fault_id) if one.removes}
        survivors = [
            replica for replica, away in absences.items() if replica not in victims and not away.touch(hit.t_s, hit.t_s)
        ]
        gaps = tuple(_wait(name, hit, absences[name], past) for name in survivors) if hit.t_s < past.until_s else ()
        end_s = max((gap.until_s for gap in gaps), default=hit.t_s)
        discards = tuple(past.timeline(gap.member).discards(hit.decided_s, end_s) for gap in gaps)
        step = past.top(nextafter(hit.t_s, inf))
        signs = survival([gap.member for gap in gaps], hit, end_s, past)
        yield _Aftermath(hit, targets, step, gaps, discards, signs)


def _said(worst: _Aftermath, faults: int) -> str:
    lost = max(worst.discards)
    discarded = f"{counted(lost, 'step')} discarded" if lost else "no step discarded"
    reading = (
        f"{worst.said}: the first survivor committed after "
        f"{span(worst.first_s)} s, the last after {span(worst.last_s)} s; {discarded}"
    )
    return reading if faults == 1 else f"{reading} (the longest wait of {counted(faults, 'fault')})"


def _wait(replica: str, hit: events.InjectionInForce, absences: Absences, past: Past) -> _Gap:
    """From a hit to the next commit of a replica that it left; being taken out itself excuses the replica."""
    stop_s = min(absences.next_s(hit.t_s), past.until_s)
    previous, following = past.timeline(replica).split(hit.t_s)
    before_seq = previous.seq if previous else -1
    if following is not None and following.t_s <= stop_s:
        blind = past.blind_between(replica, before_seq, following.seq)
        return _Gap(replica, hit.t_s, following.t_s, True, blind=blind, evidence=(hit.seq, following.seq))
    excused = stop_s < past.until_s or stop_s == past.finished_s
    blind = past.blind_between(replica, before_seq)
    return _Gap(replica, hit.t_s, stop_s, False, excused, blind, (hit.seq,))


def _between_commits(replica: str, absences: Absences, past: Past) -> Iterator[_Gap]:
    """Waits between commits of a replica and for the end, without those in which a fault had taken it out.

    Of those that are wholly seen, only ones that are longer than all before.
    """
    longest_s = -inf
    parts = past.timeline(replica).parts
    for part, later in zip_longest(parts, parts[1:]):
        times_s = [*part.times_s, later.times_s[0] if later else past.until_s]
        for place, lasted_s in enumerate(map(sub, times_s[1:], times_s)):
            if lasted_s <= longest_s or absences.touch(times_s[place], times_s[place + 1]):
                continue
            previous, following = part[place], later[0] if later else None
            if place + 1 < len(part):
                following = part[place + 1]
            if following:
                blind = past.blind_between(replica, previous.seq, following.seq)
                longest_s = longest_s if blind else lasted_s
                evidence = (previous.seq, following.seq)
                yield _Gap(replica, previous.t_s, following.t_s, True, blind=blind, evidence=evidence)
            elif lasted_s > 0:
                blind = past.blind_between(replica, previous.seq)
                yield _Gap(replica, previous.t_s, past.until_s, False, blind=blind, evidence=(previous.seq,))
