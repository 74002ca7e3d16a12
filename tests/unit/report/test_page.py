"""The report of a run: one file that needs nothing, in which every link lands; the Markdown says the same."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.api import events
from chaos.model.verdict import Outcome, Verdict
from chaos.report import page, record, summary
from chaos.report.explain import Account
from chaos.report.record import CHARACTERS_MAX, EVIDENCE_MAX, NEWS_MAX, Record
from tests.golden import recorded
from tests.golden.recorded import Recorded, lay_out
from tests.mutations import score  # noqa: F401
from tests.mutations.mutation import MUTATIONS, NotHere
from tests.unit.monitors.journals import Story

BYTES_MAX = 200_000
HOSTILE = "<script>alert(1)</script>\"'|`<img src=x onerror=alert(2)>"


def read(run: Recorded, folder: Path) -> Record:
    return record.read(lay_out(run, folder / "run"))


def links(html: str) -> tuple[set[str], list[str]]:
    """Where links of a page lead to, and the ids that it has."""
    return set(re.findall(r'href="#([^"]*)"', html)), re.findall(r' id="([^"]*)"', html)


@pytest.mark.parametrize("name", recorded.names())
def test_every_recorded_run_is_one_small_file_in_which_every_link_lands(name: str, tmp_path: Path) -> None:
    told = read(recorded.load(name), tmp_path)
    html = page.render(told)
    assert len(html.encode()) < BYTES_MAX
    assert not re.search(r"<script|<iframe|<link rel=\"stylesheet|https?://|@import|url\(", html)
    aims, ids = links(html)
    assert len(ids) == len(set(ids))
    assert aims <= set(ids)
    for finding in told.verdict.findings:
        assert {f"event-{seq}" for seq in finding.evidence} <= aims
        assert finding.outcome.value in html and f"finding-{finding.monitor}" in ids


@pytest.mark.parametrize("name", ["replica-lost", "toy-storm"])
def test_the_markdown_says_the_same(name: str, tmp_path: Path) -> None:
    told = read(recorded.load(name), tmp_path)
    text = summary.markdown(told)
    assert text.startswith(f"# PASS: {told.verdict.experiment} ")
    assert told.account.gist() in text
    for row in told.rows:
        assert f"| {row.seq} | {row.t_s:.2f} | {summary.escape(row.text)} |" in text
    for finding in told.verdict.findings:
        shown = ", ".join(map(str, told.evidence(finding)))
        cells = (finding.monitor, finding.outcome.value, summary.escape(finding.reading), shown)
        assert f"| {' | '.join(cells)} |" in text


def test_what_is_not_passed_comes_first_and_leads_to_its_finding(tmp_path: Path) -> None:
    run = recorded.load("replica-lost")
    told = read(replace(run, events=run.events[:150]), tmp_path)
    html = page.render(told)
    one, other, *rest = told.verdict.findings
    one = msgspec.structs.replace(one, outcome=Outcome.PASS)
    other = msgspec.structs.replace(other, outcome=Outcome.FAIL)
    mixed = replace(told, verdict=msgspec.structs.replace(told.verdict, findings=(one, *rest, other)))
    assert [finding.outcome for finding in mixed.findings][:: len(rest) + 1] == [Outcome.FAIL, Outcome.PASS]
    assert "the run was cut off" in html.split("<h2>")[0]
    assert '<a href="#finding-fault_in_force">fault_in_force</a>, ' in html.split("<h2>")[0]
    ends = "the journal stops before the run's end"
    assert summary.markdown(told).count(f": {ends}\n") == 1  # Monitors that say the same say it together.
    first, *_ = replace(told, verdict=msgspec.structs.replace(mixed.verdict, reasons=told.verdict.reasons)).reasons
    assert first[1] == other.reading


def test_names_and_texts_are_harmless(tmp_path: Path) -> None:
    run = recorded.load("replica-lost")
    experiment = msgspec.structs.replace(run.plan.experiment, why=HOSTILE)
    told = [
        msgspec.structs.replace(event, trigger=HOSTILE, fault=HOSTILE)
        if isinstance(event, events.FaultStarted)
        else msgspec.structs.replace(event, reason=HOSTILE)
        if isinstance(event, events.RunEnded)
        else event
        for event in run.events
    ]
    hostile = replace(run, plan=msgspec.structs.replace(run.plan, experiment=experiment), events=tuple(told))
    verdict = msgspec.structs.replace(read(hostile, tmp_path).verdict, experiment=HOSTILE)
    html = page.render(record.read(tmp_path / "run", verdict))
    assert html.count("&lt;script&gt;alert(1)") > 5
    assert "<script" not in html and "<img" not in html
    for attribute in re.findall(r'(?:title|aria-label)="([^"]*)"', html):
        assert "<" not in attribute and "'" not in attribute


def test_a_page_stays_bounded(tmp_path: Path) -> None:
    """Very many pieces of news, and a finding with very many positions."""
    run = recorded.load("replica-lost")
    first, *others = run.events
    news = [events.MemberWaits(t_s=1.0, member="replica-0", reason=f"reason {n}") for n in range(NEWS_MAX * 3)]
    news[0] = msgspec.structs.replace(news[0], reason="long" * CHARACTERS_MAX)
    told = [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate([first, *news, *others])]
    long = read(replace(run, events=tuple(told)), tmp_path)
    many = msgspec.structs.replace(long.verdict.findings[0], evidence=tuple(range(1, EVIDENCE_MAX * 3)))
    verdict = msgspec.structs.replace(long.verdict, findings=(many, *long.verdict.findings[1:]))
    long = record.read(tmp_path / "run", verdict)
    assert len(long.evidence(many)) == EVIDENCE_MAX
    assert max(len(row.text + row.recorded) for row in long.rows) <= 2 * CHARACTERS_MAX + 6
    assert len(long.rows) <= NEWS_MAX + EVIDENCE_MAX * len(verdict.findings)
    assert long.news_unsaid + len(long.rows) > NEWS_MAX * 3
    html = page.render(long)
    assert f"and {len(many.evidence) - EVIDENCE_MAX} more" in html
    assert f"{long.news_unsaid} more news" in html
    aims, ids = links(html)
    assert aims <= set(ids)


def test_a_run_whose_steps_come_at_an_even_pace_is_told_as_well() -> None:
    """Waits of equal length have no order of their own."""
    story = Story(3).deploy().train(30).drain().end()
    account = Account(story.plan, Verdict(Outcome.PASS, "even", "", (), ()))
    for event in story.journal():
        account.take(event)
    assert not any("Nobody committed" in line for line in account.unusual())


@settings(max_examples=30)
@given(name=st.sampled_from(recorded.names()), mutation=st.sampled_from(sorted(MUTATIONS)), seed=st.integers(0, 99))
def test_whatever_a_journal_holds_it_is_drawn(tmp_path_factory, name: str, mutation: str, seed: int) -> None:
    try:
        run = MUTATIONS[mutation].applied(recorded.load(name), seed)
    except NotHere:
        return
    well_drawn(record.read(lay_out(run, tmp_path_factory.mktemp("drawn") / "run")))


@pytest.mark.parametrize("mutation", ["fault_never_started", "nothing_written", "two_writers", "field_of_the_future"])
def test_journals_that_broke_a_page_once(mutation: str, tmp_path: Path) -> None:
    run = MUTATIONS[mutation].applied(recorded.load("process-freeze"), 3)
    well_drawn(read(run, tmp_path))


def well_drawn(told: Record) -> None:
    html = page.render(told)
    aims, ids = links(html)
    assert aims <= set(ids) and len(ids) == len(set(ids))
    for style in re.findall(r'style="([^"]*)"', html):
        assert all(-0.01 <= float(percent) <= 100.01 for percent in re.findall(r":([^:;]*)%", style)), style
