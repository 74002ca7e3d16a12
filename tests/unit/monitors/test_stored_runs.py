"""Damage to a stored run is said and never passed over: a torn, mixed or foreign journal is UNKNOWN, never PASS."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import MONITORS, about, lost_and_back

from chaos.api import Outcome, events
from chaos.check import PLAN, check, digest
from chaos.journal import FLAWS_SAID_MAX, NAME
from chaos.model.errors import BadInput

Lines = list[bytes]


def whole() -> tuple[bytes, Lines]:
    """Plan and journal of a run that passes every monitor."""
    story = lost_and_back()
    experiment = msgspec.structs.replace(story.plan.experiment, monitors={kind.name: None for kind in MONITORS})
    plan = msgspec.structs.replace(story.plan, experiment=experiment)
    told = story.alter(about(events.RunStarted), plan=digest(plan)).journal()
    return msgspec.json.encode(plan), [msgspec.json.encode(event) + b"\n" for event in told]


PLAN_BYTES, LINES = whole()


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


def judged(run_dir: Path, journal: bytes, plan: bytes = PLAN_BYTES) -> tuple[Outcome, tuple[str, ...]]:
    (run_dir / PLAN).write_bytes(plan)
    (run_dir / NAME).write_bytes(journal)
    verdict = check(run_dir)
    return verdict.outcome, verdict.reasons


def garbage(lines: Lines) -> bytes:
    return random.Random(1).randbytes(10_000)


def two_writers(lines: Lines) -> bytes:
    """Both write every event of the run, in turn."""
    return b"".join(line + line for line in lines)


def of_a_newer_version(lines: Lines) -> bytes:
    return b"".join(lines).replace(b'"kind":"quorum"', b'"kind":"quorum_of_quorums"')


def with_other_types(lines: Lines) -> bytes:
    return b"".join(lines).replace(b'"incarnation":2', b'"incarnation":[2]')


def bottomless(lines: Lines) -> bytes:
    nested = b'{"kind":"news","seq":0,"t_s":0,"member":"replica-0","of":' + b"[" * 100_000 + b"\n"
    return b"".join([*lines[:40], nested, *lines[40:]])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: b"", "the journal does not begin with the run's start"),
        (lambda lines: b"".join(lines[:-1]), "the journal has no end: the run was cut off"),
        (lambda lines: b"".join(lines)[:-1], f"the journal is flawed: line {len(LINES)} is torn"),
        (lambda lines: b"".join(lines)[:-40], f"the journal is flawed: line {len(LINES)} is torn"),
        (lambda lines: b"".join(lines) + bytes(4096), f"the journal is flawed: line {len(LINES) + 1} is torn"),
        (lambda lines: b"".join(lines[1:]), "the journal does not begin with the run's start"),
        (lambda lines: b"".join(lines[:40] + lines[41:]), "line 41 has number 41, expected 40"),
        (lambda lines: b"\xef\xbb\xbf" + b"".join(lines), "line 1 is not an event"),
        (garbage, "line 1 is not an event"),
        (two_writers, "line 2 has number 0, expected 1"),
        (of_a_newer_version, "is an event of kind 'quorum_of_quorums' that this version cannot read"),
        (with_other_types, "is not an event"),
        (bottomless, "line 41 is not an event"),
    ],
)
def test_a_damaged_journal_is_unknown_and_says_where(
    run_dir: Path, damage: Callable[[Lines], bytes], said: str
) -> None:
    assert judged(run_dir, b"".join(LINES)) == (Outcome.PASS, ())
    outcome, reasons = judged(run_dir, damage(LINES))
    assert outcome is Outcome.UNKNOWN
    assert any(said in reason for reason in reasons), reasons


def test_of_many_flaws_the_first_are_said_and_the_others_counted(run_dir: Path) -> None:
    outcome, reasons = judged(run_dir, b"".join(LINES) + b"?\n" * 1000)
    flaws = [reason for reason in reasons if reason.startswith("the journal is flawed")]
    assert outcome is Outcome.UNKNOWN
    assert len(flaws) == FLAWS_SAID_MAX + 1
    assert flaws[-1] == f"the journal is flawed: and {1000 - FLAWS_SAID_MAX} more flaws"


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (b"", "plan.json cannot be read"),
        (PLAN_BYTES[:-1], "plan.json cannot be read"),
        (b"\x00\xff" * 100, "plan.json cannot be read"),
        (b"[" * 100_000, "plan.json cannot be read"),
        (PLAN_BYTES.replace(b'"topology"', b'"typology"'), "plan.json cannot be read"),
        (PLAN_BYTES.replace(b'"one_quorum"', b'"one_quorun"'), "unknown monitor 'one_quorun'; did you mean"),
    ],
)
def test_without_its_plan_nothing_is_judged(run_dir: Path, plan: bytes, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        judged(run_dir, b"".join(LINES), plan)


@pytest.mark.parametrize("name", [PLAN, NAME])
def test_a_folder_that_lacks_a_part_is_not_that_of_a_run(run_dir: Path, name: str) -> None:
    judged(run_dir, b"".join(LINES))
    (run_dir / name).unlink()
    with pytest.raises(BadInput, match=f"is not the folder of a run: .*{name}"):
        check(run_dir)


@settings(max_examples=200)
@given(data=st.data())
def test_whatever_happens_to_the_bytes_of_a_journal_it_is_judged_and_no_flaw_passes(
    run_dir: Path, data: st.DataObject
) -> None:
    story = b"".join(LINES)
    begin = data.draw(st.integers(0, len(story)), label="begin")
    end = data.draw(st.integers(begin, min(len(story), begin + 400)), label="end")
    instead = data.draw(st.one_of(st.binary(max_size=8), st.just(story[begin:end] * 2)), label="instead")
    damaged = story[:begin] + instead + story[end:]
    outcome, _ = judged(run_dir, damaged)
    if outcome is Outcome.PASS:
        assert [json.loads(line)["seq"] for line in io.BytesIO(damaged)] == list(range(len(LINES)))
