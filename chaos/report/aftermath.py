"""What one fault meant for a job, in sentences: how it was proven, what survivors did, how victims came back.

Part of `chaos explain`. Only what was seen is told; what a journal does not say is left out or said to be missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from chaos import registry
from chaos.model.commits import Commit
from chaos.model.events import FaultStarted, InjectionInForce, InjectionReverted, RevertFailed
from chaos.model.injections import Held
from chaos.model.lives import Hit, Life
from chaos.model.past import Past
from chaos.model.plan import Plan
from chaos.model.recovery import way_back
from chaos.model.wording import counted, listed, span


@dataclass(frozen=True)
class Line:
    """A sentence or a few, and the time they belong to."""

    t_s: float
    text: str


@dataclass(frozen=True)
class Aftermath:
    """One fault and what followed. `away_s` is how long its worst victim was away; infinite when it stayed away."""

    started: FaultStarted
    plan: Plan
    past: Past
    hits: tuple[Hit, ...]

    @property
    def away_s(self) -> float:
        away = [min(self.past.back_s(hit), self._again_s(hit)) - hit.t_s for hit in self._victims()]
        return max(away, default=0.0)

    def lines(self) -> Iterator[Line]:
        """In full: the fault, its survivors, each victim, and its end."""
        yield Line(self.started.t_s, " ".join(filter(None, [self._named(), self._meaning(), self._proven()])))
        proofs = self.past.proofs.get(self.started.fault_id, [])
        if not proofs:
            return
        if survivors := self._survivors(proofs[0]):
            yield Line(proofs[0].t_s, survivors)
        for hit in self.hits:
            yield from self._fate(hit)
        ends = [end for hit in self.hits for end in hit.ends]
        if ends:
            yield Line(max(end.t_s for end in ends), self._undone(ends))

    def line(self) -> Line:
        """In a line."""
        if not self.past.proofs.get(self.started.fault_id):
            return Line(self.started.t_s, f"{self._named()} It was never proven in force.")
        victims = self._victims()
        if not victims:
            return Line(self.started.t_s, f"{self._named()} It took nobody out.")
        if again := [hit.member for hit in victims if self._again_s(hit) < inf]:
            return Line(self.started.t_s, f"{self._named()} {listed(again)} was hit again before it was back.")
        lost = [hit.member for hit in victims if self.past.back_s(hit) == inf]
        if lost:
            return Line(self.started.t_s, f"{self._named()} {listed(lost)} did not come back.")
        back = "it was back" if len(victims) == 1 else f"the last of {len(victims)} was back"
        return Line(self.started.t_s, f"{self._named()} After {span(self.away_s)} s {back}.")

    def _victims(self) -> list[Hit]:
        """The replicas that it may have taken out."""
        return [hit for hit in self.hits if hit.removes and hit.member in self.plan.replicas()]

    def _named(self) -> str:
        return f"{self.started.fault} hit {listed(self.started.targets)} ({self.started.trigger})."

    def _meaning(self) -> str:
        """What the fault does, by its own docstring; nothing when it is not known here."""
        kind = registry.faults().get(self.started.fault)
        return registry.summary(kind) if kind else ""

    def _proven(self) -> str:
        proofs = self.past.proofs.get(self.started.fault_id, [])
        if not proofs:
            return "It was never proven in force."
        slowest_ms = max(proof.latency_s for proof in proofs) * 1000
        first = proofs[0].proof
        more = f" ({counted(len(proofs) - 1, 'more proof')} like it)" if len(proofs) > 1 else ""
        return f"Proven within {slowest_ms:.0f} ms: {first.evidence}{more}."

    def _survivors(self, proof: InjectionInForce) -> str:
        """What the replicas did that it had not taken out and that were there."""
        away = {name for name in self.plan.replicas() if self.past.absences(name).touch(proof.t_s, proof.t_s)}
        waits: dict[str, float] = {}
        waiting: list[str] = []
        quorums: set[tuple[int, int]] = set()
        for replica in self.plan.replicas():
            before, after = self.past.timeline(replica).split(proof.t_s)
            if replica in away or before is None:
                continue
            if after is None:
                waiting.append(replica)
                continue
            waits[replica] = after.t_s - proof.t_s
            if after.quorum_id != before.quorum_id:
                quorums.add((after.quorum_id, after.participants))
        said = self._said_waits(waits) if waits else "No replica committed a step afterwards."
        if quorums:
            quorum_id, participants = max(quorums)
            said += f" They had formed quorum {quorum_id}, with {counted(participants, 'participant')}."
        until_s = proof.t_s + max(waits.values(), default=0.0)
        in_vain = max((self.past.timeline(name).discards(self.started.t_s, until_s) for name in waits), default=0)
        if in_vain:
            said += f" Before that {counted(in_vain, 'step')} {'was' if in_vain == 1 else 'were'} tried in vain."
        if waiting and waits:
            said += f" {listed(waiting)} committed nothing any more."
        return said

    def _said_waits(self, waits: dict[str, float]) -> str:
        first, last = min(waits.values()), max(waits.values())
        who = listed(sorted(waits))
        times = span(first) if span(first) == span(last) else f"{span(first)} to {span(last)}"
        return f"{who} went on: the next commit came {times} s after the hit."

    def _fate(self, hit: Hit) -> Iterator[Line]:
        """How a member that was hit fared, from the hit to its return."""
        if hit.member not in self.plan.replicas():
            yield from self._service(hit)
            return
        if not hit.removes:
            yield Line(hit.t_s + 0.001, self._slowed(hit))
            return
        gone = hit.struck.exited if hit.struck else None
        if gone and gone.t_s < self.past.drain_s:
            yield Line(max(hit.t_s, gone.t_s), f"{hit.member} was gone, with its life {gone.incarnation}.")
        back = next(self.past.commits_after(hit), None)
        if (again_s := self._again_s(hit)) < inf:
            yield Line(again_s, f"{hit.member} was hit again before it was back.")
        elif back is None:
            yield Line(self.past.until_s, self._stayed_away(hit))
        else:
            yield Line(back[1].t_s, self._return(hit, *back))

    def _again_s(self, hit: Hit) -> float:
        """When a victim was taken out again before it was back; infinite when it was not."""
        again_s = self.past.absences(hit.member).next_s(hit.t_s)
        return again_s if again_s < self.past.back_s(hit) else inf

    def _service(self, hit: Hit) -> Iterator[Line]:
        """A lighthouse or a controller."""
        newer = [life for life in self.past.lives_after(hit) if life is not hit.struck and life.started]
        if newer and (started := newer[0].started):
            after_s = max(0.0, started.t_s - hit.t_s)
            yield Line(started.t_s, f"{hit.member} was started again, {span(after_s)} s after the hit.")

    def _slowed(self, hit: Hit) -> str:
        """What a fault that takes nobody out did to the pace of the job."""
        end_s = min(hit.due_s if hit.held else hit.t_s, self.past.until_s)
        before, during = (
            [move.t_s for move in self.past.moves() if since_s <= move.t_s <= until_s]
            for since_s, until_s in ((0.0, hit.t_s), (hit.t_s, end_s))
        )
        if len(before) < 2 or len(during) < 2:
            return f"{hit.member} stayed with the others."
        rates = [(len(times) - 1) / (times[-1] - times[0]) for times in (before, during)]
        return f"{hit.member} stayed; the job made {rates[1]:.2f} steps/s while it lasted, and {rates[0]:.2f} before."

    def _return(self, hit: Hit, life: Life, commit: Commit) -> str:
        """The way back, by its parts."""
        way = way_back(hit, life, commit)
        parts = []
        if way.respawned:
            parts.append(f"was started again on {way.respawned.node} as life {life.incarnation}")
        if way.built:
            since_s = way.respawned.t_s if way.respawned else hit.t_s
            parts.append(f"had its trainer built {span(way.built.t_s - since_s)} s later")
        if way.healed:
            took = f" in {span(way.healed.t_s - way.healing.t_s)} s" if way.healing else ""
            parts.append(f"took the state of step {way.healed.step} from {way.healed.source}{took}")
        parts.append(f"committed step {commit.step} in quorum {commit.quorum_id}, {self._after(hit, commit.t_s)}")
        said = f"{hit.member} {'' if way.reborn else 'went on in the same life: it '}{_all(parts)}."
        missed = commit.step - 1 - max((one.step for one in self._before(hit)), default=0)
        said += f" {counted(missed, 'step')} had been trained without it." if missed > 0 else ""
        lost = self.past.lives_after(hit).index(life) + hit.lethal - 1
        said += f" {counted(lost, 'earlier life', 'earlier lives')} had come to nothing." if lost > 0 else ""
        return f"{said} {self._state(life, commit)}"

    def _before(self, hit: Hit) -> list[Commit]:
        """What a victim had committed before it was taken out, or while it was still on its way out."""
        return [one for one in self.past.member_commits(hit.member) if one.t_s < hit.due_s]

    def _after(self, hit: Hit, t_s: float) -> str:
        if not hit.held or t_s < hit.due_s:
            return f"{span(t_s - hit.t_s)} s after the hit"
        return f"{span(t_s - hit.due_s)} s after the fault's end and {span(t_s - hit.t_s)} s after the hit"

    def _state(self, life: Life, commit: Commit) -> str:
        """Whether its state was that of its peers when both were first told."""
        for own in life.commits_within(commit.t_s):
            peers = {one.digest for one in self.past.kept(own.step) if one.member != own.member and one.digest}
            if own.digest and peers:
                same = "was the same as that of its peers" if peers == {own.digest} else "was NOT that of its peers"
                return f"After step {own.step} its state {same}."
        return "Its state was never compared with that of a peer."

    def _stayed_away(self, hit: Hit) -> str:
        newer = [life for life in self.past.lives_after(hit) if life is not hit.struck]
        if not newer:
            how = "no new life of it began" if hit.lethal else "it committed nothing more"
        else:
            life = newer[-1]
            how = "its trainer was never built" if not life.trainer else "it took no state from a peer"
            how = f"its trainer failed: {life.failed.error}" if life.failed else how
            how = "it had taken a peer's state, and committed nothing" if life.heals and not life.failed else how
        return f"{hit.member} did not come back before the end: {how}."

    def _undone(self, ends: list[InjectionReverted | RevertFailed]) -> str:
        held = [proof for hit in self.hits for proof in hit.proofs if isinstance(proof.injection, Held)]
        since_s = min((proof.t_s for proof in held), default=self.started.t_s)
        held_s = max(end.t_s for end in ends) - since_s
        failed = [end for end in ends if isinstance(end, RevertFailed)]
        said = f"{self.started.fault} was over, {span(held_s)} s after it began"
        if failed:
            return f"{said}, and not in order: {failed[0].reason}."
        proofs = [end.proof.evidence for end in ends if isinstance(end, InjectionReverted)]
        return f"{said}: {proofs[-1]}."


def aftermath(started: FaultStarted, plan: Plan, past: Past) -> Aftermath:
    return Aftermath(started, plan, past, tuple(past.hits_by(started.fault_id)))


def summary_of(fault_ids: Iterable[str], past: Past) -> str:
    """How many faults of each kind."""
    kinds = Counter(past.started[fault_id].fault for fault_id in fault_ids)
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common())


def _all(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`, however many."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
