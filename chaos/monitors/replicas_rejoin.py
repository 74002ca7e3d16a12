"""`replicas_rejoin`: a replica that was hit comes back as its peers' equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from chaos.api import (
    Commit,
    Finding,
    History,
    Hit,
    Limits,
    Monitor,
    Outcome,
    Past,
    Seconds,
    WayBack,
    counted,
    span,
    way_back,
)


class ReplicasRejoinLimits(Limits, frozen=True):
    """Thresholds of `replicas_rejoin`."""

    within_s_max: Seconds = 120.0
    """From a replica being hit, or from the end of a fault that is held, to its first commit together with a peer."""


@dataclass(frozen=True)
class _Return:
    """A replica's way back, and what it was worth.

    `trained_by` are the numbers of replicas that trained the steps it missed. `equal` is None while no digest could be
    compared with a peer's. `evidence` are the journal positions that show it.
    """

    way: WayBack
    attempts: int
    missed: int
    trained_by: tuple[int, ...]
    equal: bool | None
    blind: bool
    evidence: tuple[int, ...]

    @property
    def hit(self) -> Hit:
        return self.way.hit

    @property
    def member(self) -> str:
        return self.way.life.member

    @property
    def recovery_s(self) -> float:
        return self.way.recovery_s

    def measures(self) -> dict[str, float | int | str | None]:
        return {**self.way.phases(), "steps_missed": self.missed}

    def said(self, replicas: int) -> str:
        parts = self.measures()
        respawn, heal, first = (_part(parts[key]) for key in ("respawn_s", "heal_s", "first_commit_s"))
        reading = f"{self.member} came back {_after(self.hit, self.recovery_s)}"
        reading += f": respawn {respawn}, " if self.way.reborn else ", in the same life: "
        reading += f"heal {heal}, first commit {first}; "
        if self.missed:
            few, many = min(self.trained_by), max(self.trained_by)
            by = f"{few} of {replicas}" if few == many else f"{few} to {many} of {replicas}"
            were = "was" if self.missed == 1 else "were"
            reading += f"{counted(self.missed, 'step')} {were} trained by {by} replicas"
        else:
            reading += "no step was trained without it"
        return reading if self.attempts == 1 else f"{reading}; it took {counted(self.attempts, 'attempt')}"


class ReplicasRejoin(Monitor[ReplicasRejoinLimits]):
    """Every replica that a fault took out comes back within `within_s_max`: same name, healed, same step, same state.

    A replica that was killed comes back in a new life. One that was frozen or cut off has until the end of that fault,
    and may come back in the same life; if it never left, its next commit is its return.
    A job that only ever loses replicas shrinks until its quorum is gone, and one that comes back with another state
    is worse than one that stays away.
    """

    name: ClassVar[str] = "replicas_rejoin"
    safety: ClassVar[bool] = False
    limits: ClassVar[type[Limits]] = ReplicasRejoinLimits

    def conclude(self, history: History) -> Finding:
        past = history.past
        hits = [hit for hit in past.hits if hit.removes and hit.member in self.plan.replicas()]
        failures: list[tuple[str, tuple[int, ...]]] = []
        doubts: list[str] = []
        returns: list[_Return] = []
        for hit in hits:
            back = _return(hit, past, len(self.plan.replicas()) == 1)
            if back is None:
                failed, said = self._stayed_away(hit, past)
                if failed:
                    failures.append((said, (hit.seq,)))
                elif said:
                    doubts.append(said)
                continue
            returns.append(back)
            if failure := self._failure(back):
                failures.append((failure, back.evidence))
            elif doubt := _doubt(back, past):
                doubts.append(doubt)
        worst = max(returns, key=lambda back: back.recovery_s, default=None)
        measures = worst.measures() if worst else {}
        lines = [back.said(len(self.plan.replicas())) for back in returns]
        if failures:
            reading = "\n".join(failure for failure, _ in failures)
            return self.finding(Outcome.FAIL, reading, measures, [seq for _, seqs in failures for seq in seqs])
        if not hits and self._planned():
            doubts.append("no replica was hit, though it was planned")
        if missing := past.missing(()):
            doubts.append(missing)
        if doubts:
            return self.finding(Outcome.UNKNOWN, "\n".join(doubts), measures)
        evidence = [seq for back in returns for seq in back.evidence]
        reading = "\n".join(lines) if hits else "no replica was hit, none had to come back"
        return self.finding(Outcome.PASS, reading, measures, evidence)

    def _planned(self) -> bool:
        members = {*self.plan.replicas(), *(place.node for place in self.plan.topology.placements)}
        return any(fault.removes and members.intersection(fault.targets) for fault in self.plan.faults)

    def _failure(self, back: _Return) -> str | None:
        if back.equal is False:
            return f"{back.member} came back with another state than its peers (first compared after its return)"
        if back.recovery_s > self.limit.within_s_max:
            after = _after(back.hit, back.recovery_s)
            return f"{back.member} came back {after} only (at most {self.limit.within_s_max:g})"
        return None

    def _stayed_away(self, hit: Hit, past: Past) -> tuple[bool, str]:
        """Whether a replica that did not come back failed to, and what to say; an empty word when it was excused."""
        end_s = min(_next_hit_s(hit, past), past.until_s)
        if hit.due_s > end_s:
            return False, "" if end_s < past.until_s else f"{hit.member} was still under its fault when the run ended"
        away_s = end_s - hit.due_s
        said = f"{hit.member} did not come back: {_reached(hit, past)}, {_since(hit, away_s)}"
        if past.blind_between(hit.member, _decided(hit, past)):
            return False, f"{said}, but events of it did not arrive"
        if away_s > self.limit.within_s_max:
            return True, f"{said} (at most {self.limit.within_s_max:g})"
        if end_s < past.until_s:
            return False, ""
        if past.finished_s <= end_s:
            return False, f"{said}, when the job had trained all its steps"
        if past.completed and past.drain_s <= end_s:
            return True, f"{said}, when the run stopped waiting"
        return False, f"{said}, when the run ended"


def _return(hit: Hit, past: Past, alone: bool) -> _Return | None:
    """The way back from a hit: up to the first commit with a peer in one quorum; `alone`: a job of one replica."""
    before_s = _next_hit_s(hit, past)
    commits = past.commits_after(hit, until_s=before_s)
    life, commit = next(((life, one) for life, one in commits if alone or _peers(one, past)), (None, None))
    if life is None or commit is None:
        return None
    later = past.timeline(hit.member).digested_within(commit.t_s, life.commits.times_s[-1])
    proof = next((one for one in later if _equal(one, past) is not None), None)
    trained_by = tuple(_trained_without(hit.member, commit.step, past))
    way = way_back(hit, life, commit)
    marks = (hit.proofs[0], *hit.ends[-1:], *way.marks, commit, proof)
    return _Return(
        way,
        attempts=max(1, past.lives_after(hit).index(life) + hit.lethal),
        missed=len(trained_by),
        trained_by=trained_by,
        equal=_equal(proof, past) if proof else None,
        blind=past.blind_between(hit.member, _decided(hit, past), (proof or commit).seq),
        evidence=tuple(dict.fromkeys(mark.seq for mark in marks if mark is not None)),
    )


def _peers(commit: Commit, past: Past) -> list[Commit]:
    """Commits of the same step by other replicas in the same quorum."""
    others = past.steps.commits(commit.step)
    return [one for one in others if one.member != commit.member and one.quorum_id == commit.quorum_id]


def _equal(commit: Commit, past: Past) -> bool | None:
    """Whether the state after a commit is that of a peer; None when there are no two digests."""
    digests = {peer.digest for peer in _peers(commit, past) if peer.digest is not None}
    return None if commit.digest is None or not digests else commit.digest in digests


def _trained_without(member: str, before: int, past: Past) -> Iterator[int]:
    """By how many others each step was trained that the member missed, back from the one of its return."""
    for step in range(before - 1, 0, -1):
        tally = past.steps.tallies.get(step)
        if tally is None:  # Nobody told of it: a journal with holes, or with a step that cannot be.
            return
        if not tally.others and not past.steps.ordinary(member, step):
            yield tally.commits  # As of most steps: they are alike, and none is the member's.
            continue
        kept = past.kept(step)
        if any(commit.member == member for commit in kept):
            return
        yield len({commit.member for commit in kept if not commit.healing})


def _doubt(back: _Return, past: Past) -> str | None:
    if back.blind:
        return f"{back.member} came back, but some events of it did not arrive"
    if unborn := _unborn(back.way):
        return f"{back.member} came back, but {unborn}"
    hit_again = _next_hit_s(back.hit, past) < past.until_s
    if back.equal is None and not hit_again:
        return f"{back.member} came back {_after(back.hit, back.recovery_s)}, but no digest of it could be compared"
    return None


def _unborn(way: WayBack) -> str | None:
    """What is missing of the birth of the life that a replica came back in. Its trainer alone may be a new one, too."""
    struck, life = way.hit.struck, way.life
    if life is struck or struck is None:
        return None
    if life.trainer is None:
        return "no trainer was seen to be built in its new life"
    if life.started is None:
        return "its new life was not seen to begin" if life.incarnation != struck.incarnation else None
    if life.incarnation <= struck.incarnation:
        return f"its new life has the number {life.incarnation}, as if it were the one that was hit"
    return None


def _next_hit_s(hit: Hit, past: Past) -> float:
    """When the member was taken out again; infinite when it was not."""
    return past.absences(hit.member).next_s(hit.t_s)


def _decided(hit: Hit, past: Past) -> int:
    """The journal position at which the fault was decided; its effects may be seen before its proof."""
    started = past.started.get(hit.fault_id)
    return started.seq if started else hit.seq


def _reached(hit: Hit, past: Past) -> str:
    """How far the newest life got on its way back."""
    lives = past.lives_after(hit)
    if not lives:
        return "no new life of it began"
    life, commits = lives[-1], list(past.commits_after(hit))
    if commits:
        return f"it committed step {commits[-1][1].step}, but never together with a peer"
    if life.failed:
        return f"its trainer failed ({life.failed.error})"
    if life is hit.struck:
        return "it committed nothing"
    if life.heals:
        return "it had healed and not committed"
    if life.heals_started:
        return f"it was healing from {life.heals_started[-1].source}"
    if life.quorums:
        return "it had joined a quorum"
    return "it had no quorum" if life.trainer else "its trainer was not built"


def _after(hit: Hit, seconds: float) -> str:
    return f"{span(seconds)} s after the fault's end" if hit.held else f"after {span(seconds)} s"


def _since(hit: Hit, seconds: float) -> str:
    return f"{span(seconds)} s after {'the end of its fault' if hit.held else 'it was hit'}"


def _part(seconds: float | int | str | None) -> str:
    return span(seconds) if isinstance(seconds, float | int) else "none"
