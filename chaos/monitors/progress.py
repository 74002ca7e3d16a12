"""`progress`: the job keeps moving forward."""

from __future__ import annotations

from typing import ClassVar

from chaos.api import Finding, History, Limits, Monitor, Outcome, Past, Seconds, counted, events, span


class ProgressLimits(Limits, frozen=True):
    """Thresholds of `progress`."""

    stall_s_max: Seconds = 60.0
    """The longest time without a newly committed step, from the first commit until drain."""


class Progress(Monitor[ProgressLimits]):
    """A new step is committed again and again, and no step is ever trained twice.

    A stalled job burns its machines for nothing and tells nobody; a state that falls back throws away steps that were
    already paid for, and the learning-rate schedule and the data no longer fit it.
    """

    name: ClassVar[str] = "progress"
    safety: ClassVar[bool] = False
    limits: ClassVar[type[Limits]] = ProgressLimits

    def conclude(self, history: History) -> Finding:
        past = history.past
        moves = _moves(past)
        if not moves:
            return self.finding(Outcome.UNKNOWN, "no step was committed", {"steps_committed": 0})
        back = _falls_back(past)
        stall_s, since = self._longest_stall(moves, past)
        before, after = _rates(moves, past, self.plan.replicas())
        measures: dict[str, float | int | str | None] = {
            "steps_committed": len(past.commits),
            "steps_per_s_before": before,
            "steps_per_s_after": after,
            "longest_stall_s": stall_s,
            "falls_back": len(back),
        }
        faults = []
        if back:
            again, first = back[0]
            faults.append(
                f"the state fell back: {again.member} committed step {again.step} at {again.t_s:.1f} s, which "
                f"{first.member} had committed at {first.t_s:.1f} s ({counted(len(back), 'such commit')})"
            )
        if stall_s > self.limit.stall_s_max:
            faults.append(
                f"no new step was committed for {span(stall_s)} s after step {since.step} "
                f"(at most {self.limit.stall_s_max:g})"
            )
        if faults:
            evidence = [commit.seq for pair in back[:3] for commit in pair] or [since.seq]
            return self.finding(Outcome.FAIL, "; ".join(faults), measures, evidence)
        if missing := past.missing(self.plan.replicas()):
            return self.finding(Outcome.UNKNOWN, missing, measures)
        reading = f"{counted(len(past.commits), 'step')} committed, never more than {span(stall_s)} s apart"
        if before is not None and after is not None:
            reading += f"; {before:.2f} steps/s before the first fault, {after:.2f} after the last return"
        return self.finding(Outcome.PASS, reading, measures)

    def _longest_stall(self, moves: list[events.Step], past: Past) -> tuple[float, events.Step]:
        """The longest wait for a new step, up to the end of the time that is judged, and the commit it followed."""
        times = [move.t_s for move in moves[1:]] + [max(past.until_s, moves[-1].t_s)]
        return max(
            ((end_s - move.t_s, move) for move, end_s in zip(moves, times, strict=True)),
            key=lambda stall: stall[0],
        )


def _moves(past: Past) -> list[events.Step]:
    """The first commit of each step that was new to the whole job, in time order."""
    firsts = sorted((min(commits, key=lambda c: c.t_s) for commits in past.commits.values()), key=lambda c: c.t_s)
    moves: list[events.Step] = []
    for commit in firsts:
        if not moves or commit.step > moves[-1].step:
            moves.append(commit)
    return moves


def _falls_back(past: Past) -> list[tuple[events.Step, events.Step]]:
    """Commits of a step that their member, or the group in an earlier quorum, had committed before, with the latter."""
    found = {}
    for member in list(past.lives):
        highest: events.Step | None = None
        for commit in past.member_commits(member):
            if highest is not None and commit.step <= highest.step:
                kept = past.kept(commit.step)
                earlier = [c for c in kept if c.member == member and c is not commit and c.t_s <= commit.t_s]
                if earlier or commit.step < highest.step:
                    found[commit.seq] = (commit, earlier[0] if earlier else highest)
            if highest is None or commit.step > highest.step:
                highest = commit
    for step in past.commits:
        kept = sorted(past.kept(step), key=lambda c: c.t_s)
        for commit in kept:
            if commit.quorum_id != kept[0].quorum_id:
                found.setdefault(commit.seq, (commit, kept[0]))
    return sorted(found.values(), key=lambda pair: pair[0].t_s)


def _rates(moves: list[events.Step], past: Past, replicas: tuple[str, ...]) -> tuple[float | None, float | None]:
    """Steps per second before the first fault was in force, and after the last replica that was hit came back."""
    if not past.in_force:
        return _rate(moves), None
    first_s = min(hit.t_s for hit in past.in_force)
    before = _rate([move for move in moves if move.t_s < first_s])
    back_s = [first_s]
    for hit in past.in_force:
        if hit.proof.member in replicas:
            life = past.back(hit)
            if life is None:
                return before, None
            back_s.append(life.commits[0].t_s)
    return before, _rate([move for move in moves if move.t_s >= max(back_s)])


def _rate(moves: list[events.Step]) -> float | None:
    if len(moves) < 2 or moves[-1].t_s <= moves[0].t_s:
        return None
    return (moves[-1].step - moves[0].step) / (moves[-1].t_s - moves[0].t_s)
