"""The live view: replicas as lanes while a run goes on; plain lines where there is no terminal.

It watches the same events and history as the monitors and adds nothing of its own to the run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from chaos.model.events import (
    Admission,
    AnyEvent,
    EventsLost,
    FaultMissed,
    FaultStarted,
    HealEnded,
    InjectionFailed,
    InjectionInForce,
    InjectionReverted,
    MemberExited,
    MemberStarted,
    MemberWaits,
    PhaseFailed,
    PhaseStarted,
    RevertFailed,
    RunEnded,
    RunStarted,
    SafetyBroken,
    TrainerFailed,
    TrainerLost,
    TrainerStarted,
    Unknown,
)
from chaos.model.experiment import Experiment
from chaos.model.history import Activity, History, Member
from chaos.model.plan import Plan
from chaos.model.ports import Watcher
from chaos.model.wording import counted

PLAIN_PROGRESS_S = 5.0
REFRESH_PER_S = 4
NEWS = 6
LANE_CELLS = 40

_STYLES = {
    Activity.DOWN: "bold red",
    Activity.STARTING: "yellow",
    Activity.WAITING: "yellow",
    Activity.HEALING: "magenta",
    Activity.TRAINING: "green",
    Activity.FINISHED: "dim",
}
_LOSSES = {"ended": "ended", "silent": "was silent", "cut_off": "was cut off from its peers"}
_CELLS = {
    Activity.DOWN: "✗",
    Activity.STARTING: "·",
    Activity.WAITING: "·",
    Activity.HEALING: "+",
    Activity.TRAINING: "█",
    Activity.FINISHED: "—",
}


@contextmanager
def watching(plan: Plan, console: Console) -> Iterator[Watcher]:
    """A watcher that shows the run on `console` for as long as the context is open."""
    if not console.is_terminal:
        yield _PlainLines(plan, console).see
        return
    lanes = _Lanes(plan)
    with Live(lanes, console=console, refresh_per_second=REFRESH_PER_S, transient=True):
        yield lanes.see


def told(event: AnyEvent) -> str | None:
    """The event as one short sentence, None when it is no news to a person."""
    match event:
        case RunStarted(platform=platform, isolation=isolation):
            return f"run started on {platform} pods, isolation: {isolation}"
        case PhaseStarted(phase=phase):
            return f"phase: {phase}"
        case PhaseFailed(phase=phase, reason=reason):
            return f"phase {phase} failed: {reason}"
        case FaultStarted(fault=fault, targets=targets, trigger=trigger):
            return f"{fault} on {', '.join(targets)} ({trigger})"
        case InjectionInForce(proof=proof, latency_s=latency_s):
            return f"in force after {latency_s * 1000:.0f} ms: {proof.evidence}"
        case InjectionFailed(reason=reason):
            return f"injection failed: {reason}"
        case InjectionReverted(proof=proof, latency_s=latency_s):
            return f"undone after {latency_s * 1000:.0f} ms: {proof.evidence}"
        case RevertFailed(fault_id=fault_id, reason=reason):
            return f"{fault_id} was not undone in order: {reason}"
        case FaultMissed(fault_id=fault_id, reason=reason):
            return f"{fault_id} missed: {reason}"
        case SafetyBroken(monitor=monitor, reading=reading):
            return f"{monitor} is broken: {reading}"
        case MemberStarted(member=member, incarnation=incarnation, address=address, node=node):
            return f"{member} started on {node}, life {incarnation}, {address}"
        case MemberExited(member=member, incarnation=incarnation, status=status):
            how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
            return f"{member} ended, life {incarnation}, {how}"
        case MemberWaits(member=member, reason=reason):
            return f"{member} waits for a place: {reason}"
        case Admission(claim=claim, members=members, admitted=True, flavors=flavors):
            return f"{', '.join(members)} admitted on {', '.join(flavors) or 'the queue'} (claim {claim})"
        case Admission(members=members, reason=reason):
            return f"{', '.join(members)} not admitted: {reason}"
        case TrainerStarted(member=member):
            return f"{member} is built and about to train"
        case TrainerFailed(member=member, error=error):
            return f"{member} failed: {error}"
        case TrainerLost(name=name, reason=reason):
            return f"{name} {_LOSSES.get(reason, reason)}, the others were told not to wait for it"
        case HealEnded(member=member, step=step, source=source):
            return f"{member} healed to step {step} from {source}"
        case EventsLost(member=member, reason=reason, count=count):
            return f"{'events' if count is None else counted(count, 'event')} of {member} did not arrive ({reason})"
        case Unknown(member=member, of_kind=of_kind):
            return f"{member} told of {of_kind!r}, which this version cannot read"
        case RunEnded(reason=reason):
            return f"run ended: {reason}"
        case _:
            return None


class _PlainLines:
    """One line for each piece of news, and one of progress now and then."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._progress_t_s = 0.0

    def see(self, event: AnyEvent, history: History) -> None:
        news = told(event)
        if news is not None:
            self._print(event.t_s, news)
        elif history.now_s - self._progress_t_s >= PLAIN_PROGRESS_S:
            self._progress_t_s = history.now_s
            lanes = ", ".join(f"{r.name} {r.activity.value} at {r.state_step}" for r in history.replicas)
            self._print(history.now_s, f"step {history.frontier}: {lanes}; {_aim(self._plan.experiment, history)}")

    def _print(self, t_s: float, text: str) -> None:
        self._console.print(f"{t_s:7.2f} s  {text}", markup=False, highlight=False, soft_wrap=True)


class _Lanes:
    """The view on a terminal; rich asks for it several times a second, from a thread of its own."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._began_mono_s = time.monotonic()
        self._news: list[Text] = []
        self._lanes: dict[str, list[Activity]] = {}
        self._history: History | None = None

    def see(self, event: AnyEvent, history: History) -> None:
        self._history = history
        news = told(event)
        if news is not None:
            self._news = [*self._news[1 - NEWS :], Text(f"{event.t_s:7.2f} s  {news}")]

    def __rich__(self) -> RenderableType:
        elapsed_s = time.monotonic() - self._began_mono_s
        if self._history is None:
            return Text(f"{self._plan.experiment.name}: deploying, {elapsed_s:.0f} s")
        history = self._history
        table = Table(box=None, pad_edge=False)
        for column in ("replica", "life", "doing", "step", "quorum", "of", "loss", "past"):
            table.add_column(column, justify="left" if column in ("replica", "doing", "past") else "right")
        for replica in history.replicas:
            table.add_row(*self._row(replica))
        return Group(Text(self._title(history, elapsed_s), "bold"), table, *self._news)

    def _title(self, history: History, elapsed_s: float) -> str:
        on = ", ".join(f"{f.fault} on {', '.join(f.targets)}" for f in self._plan.faults if f.id in history.in_force)
        aim = _aim(self._plan.experiment, history)
        return f"{self._plan.experiment.name}  {history.phase}  {elapsed_s:.0f} s  {aim}  fault: {on or 'none yet'}"

    def _row(self, replica: Member) -> list[str | Text]:
        past = self._lanes.setdefault(replica.name, [])
        past.append(replica.activity)
        del past[:-LANE_CELLS]
        lane = Text.assemble(*((_CELLS[activity], _STYLES[activity]) for activity in past))
        return [
            replica.name,
            str(replica.incarnation),
            Text(replica.activity.value, _STYLES[replica.activity]),
            str(replica.state_step),
            "-" if replica.quorum_id is None else str(replica.quorum_id),
            f"{replica.participants}/{self._plan.workload.replicas}",
            "-" if replica.loss is None else f"{replica.loss:.3f}",
            lane,
        ]


def _aim(experiment: Experiment, history: History) -> str:
    """How far the phase is from its aim, and the time it may take."""
    match history.phase:
        case "deploy":
            return f"at most {experiment.baseline.timeout_s:.0f} s until every replica trains"
        case "baseline":
            done, aim, timeout_s = history.common_steps, experiment.baseline.steps, experiment.baseline.timeout_s
        case "quiesce":
            done, aim, timeout_s = history.common_steps, experiment.quiesce.common_steps, experiment.quiesce.timeout_s
        case "disturb":
            return f"waiting for the trigger, at most {experiment.disturb_timeout_s:.0f} s"
        case _:
            return "ending"
    left_s = max(0.0, timeout_s - (history.now_s - history.phase_began_s))
    return f"{done} of {aim} common steps, {left_s:.0f} s left"
