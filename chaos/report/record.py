"""What a report tells of a run: the account, the shapes, and the events that are shown, gathered in one reading.

Both reports are made of it, the Markdown and the page, so that they say the same. The events shown are bounded: those
that findings point at, the faults that are drawn, and of the news the first. Which those are only a verdict tells, so
this reading comes after the one that judged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from chaos.check import PLAN, check
from chaos.journal import NAME, Reading
from chaos.model.events import AnyEvent, FaultStarted, RunStarted, Step
from chaos.model.history import History
from chaos.model.plan import Plan
from chaos.model.verdict import Finding, Outcome, Verdict
from chaos.report.bars import Bar, bars
from chaos.report.explain import Account, said
from chaos.report.lanes import BANDS_MAX, Watch
from chaos.report.live import told

EVIDENCE_MAX = 40
"""Of each finding. All positions stand in the verdict."""
NEWS_MAX = 300
CHARACTERS_MAX = 2000
"""Of a text that a member told."""


@dataclass(frozen=True)
class Row:
    """An event that is shown. `shows` are the monitors that point at it, `recorded` is then its line in the journal.

    `first` of its number: in the journal of two writers there may be more, and links lead to one.
    """

    seq: int
    t_s: float
    text: str
    shows: tuple[str, ...] = ()
    recorded: str = ""
    first: bool = True


@dataclass
class Record:
    """One run."""

    plan: Plan
    verdict: Verdict
    account: Account
    watch: Watch
    rows: list[Row]
    seqs: set[int] = field(default_factory=set)
    news_unsaid: int = 0
    events: int = 0

    @property
    def history(self) -> History:
        return self.account.history

    @property
    def begun(self) -> RunStarted | None:
        return self.history.past.begun

    @property
    def length_s(self) -> float:
        return self.history.now_s

    @property
    def findings(self) -> list[Finding]:
        """What failed first, what passed last."""
        order = [Outcome.FAIL, Outcome.UNKNOWN, Outcome.PASS]
        return sorted(self.verdict.findings, key=lambda finding: order.index(finding.outcome))

    @property
    def reasons(self) -> list[tuple[list[str], str]]:
        """Why it is no PASS, what failed first: the monitors that say so, if it was not the run itself, and what."""
        failed = [finding.reading for finding in self.verdict.findings if finding.outcome is Outcome.FAIL]
        found = {f"{finding.monitor}: {finding.reading}": finding for finding in self.verdict.findings}
        alike: dict[str, list[str]] = {}
        for reason in self.verdict.reasons:
            finding = found.get(reason)
            alike.setdefault(finding.reading if finding else reason, []).extend([finding.monitor] if finding else [])
        return sorted(((monitors, said) for said, monitors in alike.items()), key=lambda one: one[1] not in failed)

    def evidence(self, finding: Finding) -> tuple[int, ...]:
        """The positions that are shown of those that a finding points at."""
        return tuple(seq for seq in dict.fromkeys(finding.evidence) if seq in self.seqs)[:EVIDENCE_MAX]

    def bars(self) -> tuple[list[Bar], int]:
        return bars(self.plan, self.history.past)


def read(run_dir: Path, verdict: Verdict | None = None) -> Record:
    """The record of a stored run, judged anew if no verdict is given. Raises BadInput when the folder holds none."""
    verdict = verdict or check(run_dir)
    plan = msgspec.json.decode((run_dir / PLAN).read_bytes(), type=Plan)
    record = Record(plan, verdict, Account(plan, verdict), Watch(plan), [])
    shows: dict[int, list[str]] = {}
    for finding in verdict.findings:
        for seq in list(dict.fromkeys(finding.evidence))[:EVIDENCE_MAX]:
            shows.setdefault(seq, []).append(finding.monitor)
    for event in Reading(run_dir / NAME).events():
        _take(record, event, shows)
    return record


def _take(record: Record, event: AnyEvent, shows: dict[int, list[str]]) -> None:
    record.events += 1
    record.account.take(event)
    record.watch.see(event, record.history)
    recorded = ""
    if event.seq in shows:
        recorded = _cut(msgspec.json.encode(event).decode())
    elif isinstance(event, Step) or told(event) is None:  # Most events are steps, and no step is news.
        return
    elif len(record.rows) >= NEWS_MAX and not _drawn(event, record):
        record.news_unsaid += 1
        return
    first = event.seq not in record.seqs
    record.seqs.add(event.seq)
    record.rows.append(Row(event.seq, event.t_s, _cut(said(event)), tuple(shows.get(event.seq, ())), recorded, first))


def _drawn(event: AnyEvent, record: Record) -> bool:
    """Whether lanes show it as a fault."""
    return isinstance(event, FaultStarted) and len(record.history.past.started) <= BANDS_MAX


def _cut(text: str) -> str:
    return text if len(text) <= CHARACTERS_MAX else f"{text[:CHARACTERS_MAX]}..."
