"""`chaos explain`: what happened in a run, in plain words and in the order of time.

    print(explain(Path("runs/20261129-183350-replica-lost")))

The account is made from plan and journal alone, so it also works on a run that was cut off or whose journal is flawed.
It is bounded: of many faults the first and the worst are told in full, and what happened often is told once.
It judges nothing; what monitors found is repeated with the events that they point at.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from chaos.check import PLAN, check
from chaos.journal import NAME, Reading
from chaos.model.commits import Commit
from chaos.model.events import (
    Admission,
    AnyEvent,
    EventsLost,
    FaultMissed,
    HealStarted,
    InjectionFailed,
    MemberExited,
    MemberStarted,
    MemberWaits,
    PhaseFailed,
    Quorum,
    RevertFailed,
    SafetyBroken,
    Step,
    TrainerFailed,
    TrainerLost,
    TrainerStarted,
    Unknown,
)
from chaos.model.history import History
from chaos.model.plan import Plan
from chaos.model.verdict import Finding, Outcome, Verdict
from chaos.model.wording import counted, listed, span
from chaos.report.aftermath import Line, aftermath, summary_of
from chaos.report.live import told

WIDTH = 110
FAULTS_IN_FULL = 4
FAULTS_MAX = 16
NEWS_MAX = 12
EVIDENCE_MAX = 6
ERROR_CHARACTERS_MAX = 120
_PLACE = re.compile(r"\[[^\]]*:\d+\] ?")
_NUMBER = re.compile(r"\d+(?:[.:]\d+)*")
STALL_FACTOR = 5.0
"""A wait for a step that is so many times longer than usual is told of."""


def explain(run_dir: Path) -> str:
    """The account of a stored run. Raises BadInput when the folder holds none."""
    verdict = check(run_dir)
    plan = msgspec.json.decode((run_dir / PLAN).read_bytes(), type=Plan)
    account = Account(plan, verdict)
    for event in Reading(run_dir / NAME).events():
        account.take(event)
    return account.text()


class Account:
    """A fold over the journal that keeps what is worth telling. `history` is that of the run."""

    def __init__(self, plan: Plan, verdict: Verdict) -> None:
        self._plan = plan
        self._verdict = verdict
        self.history = History(plan.topology)
        self._past = self.history.past
        self._evidence: dict[int, AnyEvent | None] = {
            seq: None for finding in verdict.findings if finding.outcome is not Outcome.PASS for seq in finding.evidence
        }
        self._news: list[AnyEvent] = []
        """Events of the kinds that are told one by one."""
        self._events = 0

    def take(self, event: AnyEvent) -> None:
        self.history.apply(event)
        self._events += 1
        if event.seq in self._evidence:
            self._evidence[event.seq] = event
        if isinstance(event, _NEWS):
            self._news.append(event)

    def text(self) -> str:
        parts = [self._outcome(), "What happened"]
        parts += [_paragraph(line.text, f"{line.t_s:8.1f} s  ", " " * 12) for line in self.story()]
        for title, told_of in (("What was unusual", self.unusual()), ("What was not passed", self._not_passed())):
            lines = [_paragraph(line, "  ") for line in told_of]
            parts += ["", title, *lines] if lines else []
        return "\n".join(parts) + "\n"

    # The outcome.

    def _outcome(self) -> str:
        experiment = self._plan.experiment
        head = f"{self._verdict.outcome.value}: {experiment.name}"
        return "\n".join([head, _paragraph(experiment.why), "", _paragraph(self.gist()), ""])

    def gist(self) -> str:
        """The run in three sentences."""
        verdict, past = self._verdict, self._past
        replicas = counted(self._plan.workload.replicas, "replica")
        faults, now_s = len(past.started), self.history.now_s
        length = f"in {now_s:.1f} s" if past.ended else f"in the {now_s:.1f} s that are known"
        said = f"{replicas} of {self._plan.workload.recipe} trained {counted(len(past.steps), 'step')} {length}, and "
        said += f"{counted(faults, 'fault') if faults else 'no fault'} {'were' if faults > 1 else 'was'} made. "
        passed = sum(finding.outcome is Outcome.PASS for finding in verdict.findings)
        number = "All" if passed == len(verdict.findings) else f"{passed} of"
        said += f"{number} {counted(len(verdict.findings), 'monitor')} passed"
        return f"{said}{self._but()}."

    def _but(self) -> str:
        """The first reason why it is no PASS; for a FAIL, the first broken promise."""
        if not (reasons := list(self._verdict.reasons)):
            return ": the job kept its promises"
        failed = [f"{one.monitor}: {one.reading}" for one in self._verdict.findings if one.outcome is Outcome.FAIL]
        blame, reason = "whether the job kept its promises is not known", reasons[0]
        if self._verdict.outcome is Outcome.FAIL:
            blame, reason = "the job broke a promise", failed[0]
        others = f" (and {counted(len(reasons) - 1, 'other reason')}, below)" if len(reasons) > 1 else ""
        return f"; {blame}: {reason.splitlines()[0].rstrip('.')}{others}"

    # The story.

    def story(self) -> list[Line]:
        """What happened, in the order of time."""
        parts = (self._beginning(), self._places(), self._faults(), self._surprises(), self._end())
        return sorted(itertools.chain.from_iterable(parts), key=lambda line: line.t_s)

    def _beginning(self) -> Iterator[Line]:
        past, replicas = self._past, self._plan.replicas()
        if past.begun:
            yield Line(past.begun.t_s, _sentence(told(past.begun)))
        first = {name: past.lives[name][0] for name in self.history.members if past.lives.get(name)}
        begun = {name: life.started for name, life in first.items() if life.started}
        if begun:
            nodes = counted(len({event.node for event in begun.values()}), "node")
            others = [name for name in begun if name not in replicas]
            number = counted(sum(name in replicas for name in begun), "replica")
            yield Line(max(e.t_s for e in begun.values()), f"{listed([*others, number])} were started on {nodes}.")
        built = [life.trainer for name, life in first.items() if name in replicas and life.trainer]
        if built:
            yield Line(max(event.t_s for event in built), f"{counted(len(built), 'trainer')} were built.")
        baseline, disturb = past.phases.get("baseline"), past.phases.get("disturb")
        if baseline:
            yield Line(baseline.t_s, "Every replica had tried its first step.")
        if disturb:
            steps = self._plan.experiment.baseline.steps
            yield Line(disturb.t_s, f"Healthy: every replica had committed {counted(steps, 'step')} in a row.")

    def _places(self) -> Iterator[Line]:
        """Who waited for a place in the cluster, and when it was given; of very many the first."""
        for event in [event for event in self._news if isinstance(event, _PLACES)][:NEWS_MAX]:
            yield Line(event.t_s, _sentence(told(event)))

    def _faults(self) -> Iterator[Line]:
        """The first faults and those that were worst in full, the others in a line, and of very many the number."""
        started = sorted(self._past.started.values(), key=lambda one: one.t_s)
        told_of = {one.fault_id: aftermath(one, self._plan, self._past) for one in started}
        worst = sorted(started, key=lambda one: -told_of[one.fault_id].away_s)
        ranked = list(dict.fromkeys(one.fault_id for one in (*started[:1], *worst)))
        in_full = set(ranked[:FAULTS_IN_FULL])
        in_short = set(ranked[FAULTS_IN_FULL:FAULTS_MAX])
        for one in started:
            if one.fault_id in in_full:
                yield from told_of[one.fault_id].lines()
            elif one.fault_id in in_short:
                yield told_of[one.fault_id].line()
        if left := ranked[FAULTS_MAX:]:
            kinds = summary_of(left, self._past)
            yield Line(started[-1].t_s, f"{counted(len(left), 'more fault')} did less harm than these: {kinds}.")

    def _surprises(self) -> Iterator[Line]:
        """What nobody had planned, one by one; of very many the first."""
        found = [event for event in self._news if self._is_surprise(event)]
        for event in found[:NEWS_MAX]:
            yield Line(event.t_s, f"Not planned: {told(event)}.")
        if len(found) > NEWS_MAX:
            more = Counter(event.member for event in found[NEWS_MAX:])
            who = ", ".join(f"{count} of {member}" for member, count in more.most_common(4))
            yield Line(found[NEWS_MAX].t_s, f"{counted(more.total(), 'more event')} of this kind followed: {who}.")

    def _is_surprise(self, event: AnyEvent) -> bool:
        """A death, a birth or a loss that no fault and no end of the run explains; trouble of the run itself."""
        if isinstance(event, PhaseFailed | InjectionFailed | RevertFailed | FaultMissed | SafetyBroken):
            return True
        if event.t_s >= min(self._past.drain_s, self._past.finished_s) or isinstance(event, _PLACES):
            return False
        if isinstance(event, EventsLost | Unknown):
            return True
        if isinstance(event, MemberStarted | TrainerStarted) and event.incarnation <= 1:
            return False
        return not self._aimed(event.name if isinstance(event, TrainerLost) else event.member, event.t_s)

    def _end(self) -> Iterator[Line]:
        past = self._past
        if (quiesce := past.phases.get("quiesce")) and past.started:
            yield Line(quiesce.t_s, "All faults were over; from here on every replica had to train with the others.")
        if drain := past.phases.get("drain"):
            since = [commit.step for commit in past.moves() if quiesce and commit.t_s >= quiesce.t_s]
            said = f", after {counted(len(since), 'more step')}" if since else ""
            yield Line(drain.t_s, f"The job was asked to end{said}.")
        if past.ended:
            yield Line(past.ended.t_s, _sentence(told(past.ended)))
        else:
            stop = f"Here the journal stops, after {counted(self._events, 'event')}: the run was cut off."
            yield Line(self.history.now_s, stop)

    # What was unusual.

    def unusual(self) -> Iterator[str]:
        """What stood out, a sentence each."""
        yield from self._discards()
        yield from self._stalls()
        yield from self._heals()
        yield from self._states()
        yield from self._overlaps()
        for event in self._past.blind[:NEWS_MAX]:
            yield f"Blind: {told(event)}; what happened there is not known."

    def _discards(self) -> Iterator[str]:
        """Steps that were tried in vain, by what was said of them."""
        tried = [discard for lives in self._past.lives.values() for life in lives for discard in life.discards]
        by_error: dict[str, list[Step]] = {}
        for discard in tried:
            by_error.setdefault(_NUMBER.sub("#", _plain(discard)), []).append(discard)
        for group in sorted(by_error.values(), key=len, reverse=True)[:NEWS_MAX]:
            who = listed(sorted({discard.member for discard in group}))
            first_s, last_s = min(one.t_s for one in group), max(one.t_s for one in group)
            when = f"at {first_s:.1f} s" if last_s - first_s < 0.1 else f"from {first_s:.1f} to {last_s:.1f} s"
            yield f"{counted(len(group), 'step')} tried in vain by {who}, {when}: {_plain(group[0])}."

    def _stalls(self) -> Iterator[str]:
        """The longest waits for a new step that are far from usual."""
        moves = list(self._past.moves())
        ends = [*(move.t_s for move in moves[1:]), max(self._past.until_s, moves[-1].t_s)] if moves else []
        told = ((end_s - move.t_s, move) for move, end_s in zip(moves, ends, strict=True))
        waits = sorted(told, key=lambda one: (one[0], one[1].step))
        usual_s = waits[len(waits) // 2][0] if waits else 0.0
        for wait_s, move in reversed(waits[-3:]):
            if wait_s > max(1.0, STALL_FACTOR * usual_s):
                yield (
                    f"Nobody committed a new step for {span(wait_s)} s after step {move.step} at {move.t_s:.1f} s; "
                    f"usually {span(usual_s)} s passed between two."
                )

    def _heals(self) -> Iterator[str]:
        """Replicas that no fault was to take out, and that had to take a peer's state all the same."""
        for member in self._plan.replicas():
            heals = [heal for life in self._past.lives.get(member, []) for heal in life.heals if heal.step > 0]
            unforced = [heal for heal in heals if not self._aimed(member, heal.t_s)]
            if unforced:
                first, last = unforced[0], unforced[-1]
                often = f" {len(unforced)} times from {first.t_s:.1f} s on" if len(unforced) > 1 else ""
                yield (
                    f"{member}, which no fault was to take out, fell behind{often}: at {last.t_s:.1f} s it took the "
                    f"state of step {last.step} from {last.source}."
                )

    def _aimed(self, member: str, before_s: float) -> bool:
        """Whether a fault that may take it out had been aimed at a member, or hit it instead of another."""
        started = self._past.started.values()
        if any(one.removes and one.t_s <= before_s and member in self._past.aimed[one.fault_id] for one in started):
            return True
        return any(hit.member == member and hit.removes and hit.t_s <= before_s for hit in self._past.hits)

    def _states(self) -> Iterator[str]:
        """Whether the replicas held the same state."""
        compared = different = 0
        first = ""
        for step in sorted(self._past.steps.tallies):
            digests = {one.member: one.digest for one in self._past.kept(step) if one.digest is not None}
            compared += len(digests) > 1
            if len(set(digests.values())) > 1:
                different += 1
                first = first or f"first after step {step} ({listed(sorted(digests))})"
        if different:
            yield f"States of replicas differed at {different} of {counted(compared, 'compared step')}, {first}."
        elif not compared and self._past.steps:
            yield "No state of two replicas could be compared: their digests are missing."

    def _overlaps(self) -> Iterator[str]:
        """Members that were heard in an old life after a newer one had begun."""
        for member, lives in self._past.lives.items():
            for older, newer in itertools.pairwise(lives):
                begin = newer.started or newer.trainer
                tried: list[Commit | Step] = [*older.commits, *older.discards]
                late = [one for one in tried if begin and one.t_s > begin.t_s and older.incarnation < newer.incarnation]
                if late:
                    yield (
                        f"{member} lived twice at once: its life {older.incarnation} still tried "
                        f"{counted(len(late), 'step')} after life {newer.incarnation} had begun."
                    )

    # What was not passed.

    def _not_passed(self) -> Iterator[str]:
        """Reasons that no monitor gave, then what monitors found; those that say the same together."""
        findings = [finding for finding in self._verdict.findings if finding.outcome is not Outcome.PASS]
        readings = {f"{finding.monitor}: {finding.reading}" for finding in findings}
        yield from (f"The run: {reason}." for reason in self._verdict.reasons if reason not in readings)
        alike: dict[tuple[str, str], list[Finding]] = {}
        for finding in findings:
            alike.setdefault((finding.outcome.value, finding.reading), []).append(finding)
        for (outcome, reading), group in alike.items():
            yield f"{', '.join(finding.monitor for finding in group)} {outcome}: {reading}"
            yield from self._shown(group[0]) if len(group) == 1 else ()

    def _shown(self, finding: Finding) -> Iterator[str]:
        """The events that a finding points at, as sentences."""
        shown = [event for seq in finding.evidence if (event := self._evidence.get(seq)) is not None]
        for event in shown[:EVIDENCE_MAX]:
            yield f"  seen at {event.t_s:.1f} s (event {event.seq}): {said(event)}"
        if len(shown) > EVIDENCE_MAX:
            yield f"  and {counted(len(shown) - EVIDENCE_MAX, 'more event')}"


_NEWS = (
    MemberExited,
    MemberStarted,
    TrainerStarted,
    TrainerFailed,
    TrainerLost,
    PhaseFailed,
    InjectionFailed,
    RevertFailed,
    FaultMissed,
    SafetyBroken,
    EventsLost,
    Unknown,
    MemberWaits,
    Admission,
)
_PLACES = (MemberWaits, Admission)


def said(event: AnyEvent) -> str:
    """Any event as a sentence, also one that is no news by itself."""
    if news := told(event):
        return news
    match event:
        case Step(member=member, step=step, quorum_id=quorum_id, participants=participants):
            how = "committed" if event.committed else "tried in vain"
            return f"{member} {how} step {step} in quorum {quorum_id} of {participants}"
        case Quorum(member=member, quorum_id=quorum_id, participants=participants, heal=heal):
            return f"{member} got quorum {quorum_id} of {participants}{', and has to heal' if heal else ''}"
        case HealStarted(member=member, step=step, source=source):
            return f"{member} began to take the state of step {step} from {source}"
        case _:
            return f"{event.member} told of {event.kind.replace('_', ' ')}"


def _sentence(said: str | None) -> str:
    return f"{said[:1].upper()}{said[1:]}." if said else ""


def _plain(discard: Step) -> str:
    """Why a step was tried in vain: the first line of the error, without the place in the source."""
    said = _PLACE.sub("", (discard.error or "no reason was told").splitlines()[0]).strip().rstrip(".")
    return said if len(said) <= ERROR_CHARACTERS_MAX else f"{said[:ERROR_CHARACTERS_MAX]}..."


def _paragraph(text: str, first: str = "", others: str | None = None) -> str:
    """The text in lines of bounded width; `first` stands before the first of them, `others` before the rest."""
    others = " " * len(first) if others is None else others
    lines = [
        line for part in text.splitlines() for line in textwrap.wrap(part, WIDTH - len(first), drop_whitespace=True)
    ]
    return "\n".join((first if number == 0 else others) + line for number, line in enumerate(lines))
