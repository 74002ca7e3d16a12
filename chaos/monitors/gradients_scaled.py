"""`gradients_scaled`: every update is the mean over those who contributed, no more and no less."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from chaos.api import AnyEvent, Finding, History, Limits, Monitor, Outcome, Plan, counted, events


class GradientsScaledLimits(Limits, frozen=True):
    """Thresholds of `gradients_scaled`."""

    scale_error_max: Annotated[float, Meta(gt=0)] = 1e-3
    """How far from 1 an exchanged 1 of each contributor may come back: more than the rounding of any number format
    that gradients are exchanged in, less than one replica too many among 64, which is 1/64."""


Key = tuple[int, int]
"""A step and the quorum it was committed in."""
Wrong = tuple[str, tuple[int, ...]]
"""What does not fit, in words and journal positions."""


@dataclass(slots=True)
class _Exchange:
    """One step in one quorum. Replicas are bits: those who contributed, and those who tried in vain.

    `participants` is the number that the first commit of it tells, by `teller` at journal position `seq`.
    """

    participants: int = 0
    teller: str = ""
    seq: int = -1
    contributors: int = 0
    discards: int = 0
    measured: bool = False


class GradientsScaled(Monitor[GradientsScaledLimits]):
    """At each committed step the sum of gradients was divided by the number of replicas that contributed.

    A wrong divisor is a wrong learning rate that nobody set: a replica that goes on in a group of three with divisor 1
    takes steps three times too long, and replicas that are counted but still receive their first state make the first
    update of all too short. Nothing fails, and when all replicas err alike their states stay equal.

    Judged by `gradient_scale`, and by `participants` against those who reported the step.
    """

    name: ClassVar[str] = "gradients_scaled"
    safety: ClassVar[bool] = True
    watches: ClassVar[tuple[type[events.Event], ...]] = (events.TrainerStarted, events.Quorum, events.Step)
    limits: ClassVar[type[Limits]] = GradientsScaledLimits

    def __init__(self, plan: Plan, limits: GradientsScaledLimits) -> None:
        super().__init__(plan, limits)
        self._bit = {replica: 1 << index for index, replica in enumerate(plan.replicas())}
        self._exchanges: dict[Key, _Exchange] = {}
        self._next: dict[tuple[str, int], int] = {}
        """Life -> the step that it tries next."""
        self._unheard: Counter[int] = Counter()
        """Step -> lives that may have contributed to it and ended before they could say so."""
        self._wrong: dict[Key, Wrong] = {}
        self._worst_scale: float | None = None

    def observe(self, event: AnyEvent, history: History) -> None:
        if event.t_s >= history.past.drain_s:
            return
        life = (event.member, event.incarnation)
        match event:
            case events.TrainerStarted() if life in self._next:
                self._unheard[self._next.pop(life)] += 1
            case events.Quorum():
                self._next[life] = event.max_step + 1
            case events.Step() if event.member in self._bit:
                self._next[life] = event.step + event.committed
                self._take(event)
            case _:
                pass

    def _take(self, event: events.Step) -> None:
        key = (event.step, event.quorum_id)
        exchange = self._exchanges.get(key)
        if exchange is None:
            exchange = self._exchanges[key] = _Exchange()
        if not event.committed:
            exchange.discards |= self._bit[event.member]
            return
        if not exchange.teller:
            exchange.participants, exchange.teller, exchange.seq = event.participants, event.member, event.seq
        if not event.healing:
            exchange.contributors |= self._bit[event.member]
            exchange.measured |= event.gradient_scale is not None
        if wrong := self._misfit(event, exchange):
            self._wrong.setdefault(key, (wrong, (exchange.seq, event.seq)))
            if self.broken is None:
                self.broken = self.finding(Outcome.FAIL, wrong, evidence=(exchange.seq, event.seq))

    def _misfit(self, event: events.Step, exchange: _Exchange) -> str | None:
        """What does not fit in a commit, given the others of the same step and quorum."""
        of, scale = f"step {event.step} in quorum {event.quorum_id}", event.gradient_scale
        if event.participants != exchange.participants:
            return (
                f"of {of} {exchange.teller} says that {exchange.participants} took part, "
                f"{event.member} says {event.participants}"
            )
        if exchange.contributors.bit_count() > exchange.participants:
            return f"{exchange.contributors.bit_count()} replicas contributed to {of}, divided by {event.participants}"
        if scale is None:
            return None
        if self._worst_scale is None or abs(scale - 1) > abs(self._worst_scale - 1):
            self._worst_scale = scale
        if abs(scale - 1) <= self.limit.scale_error_max:
            return None
        among = counted(event.participants, "participant")
        return f"{event.member} committed {of} with gradients scaled by {scale:.4g} ({among})"

    def conclude(self, history: History) -> Finding:
        committed = {key: one for key, one in self._exchanges.items() if one.contributors}
        unmeasured = sum(not one.measured for one in committed.values())
        missing = history.past.missing(self.plan.replicas())
        wrong = self._wrong if missing else self._overcounted(committed) | self._wrong
        measures: dict[str, float | int | str | None] = {
            "exchanges": len(committed),
            "exchanges_measured": len(committed) - unmeasured,
            "exchanges_wrong": len(wrong),
            "worst_scale": self._worst_scale,
        }
        if wrong:
            reading, evidence = wrong[min(wrong)]
            more = f"; {len(wrong) - 1} more such" if len(wrong) > 1 else ""
            return self.finding(Outcome.FAIL, reading + more, measures, evidence)
        if missing:
            return self.finding(Outcome.UNKNOWN, missing, measures)
        if not committed:
            return self.finding(Outcome.UNKNOWN, "no step was committed", measures)
        if unmeasured:
            reading = f"the scale of gradients was not measured at {unmeasured} of {counted(len(committed), 'step')}"
            return self.finding(Outcome.UNKNOWN, reading, measures)
        reading = f"the gradients of {counted(len(committed), 'step')} were divided by the number of their contributors"
        return self.finding(Outcome.PASS, reading, measures)

    def _overcounted(self, committed: dict[Key, _Exchange]) -> dict[Key, Wrong]:
        """Exchanges that were divided by more replicas than can have contributed.

        A replica that died or was stopped before it could say so may have contributed, and so may one whose own commit
        failed.
        """
        unheard = self._unheard + Counter(self._next.values())
        found: dict[Key, Wrong] = {}
        for (step, quorum_id), one in committed.items():
            most = (one.contributors | one.discards).bit_count() + unheard[step]
            if one.participants > most:
                of = f"step {step} in quorum {quorum_id}"
                said = f"{of} was divided by {one.participants}, and {most} contributed at most"
                found[step, quorum_id] = (said, (one.seq,))
        return found
