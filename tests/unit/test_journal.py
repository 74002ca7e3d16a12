"""The journal is evidence: written once, in order; whatever is wrong with it is said, never passed over."""

from __future__ import annotations

import resource

import pytest

from chaos.journal import NAME, Journal, JournalBroken, Reading
from chaos.model.events import PhaseStarted, Step, Unknown


def phase(t_s: float) -> PhaseStarted:
    return PhaseStarted(t_s=t_s, member="runner", phase="deploy")


@pytest.fixture
def path(tmp_path):
    with Journal(tmp_path / NAME) as journal:
        for t_s in (0.5, 0.25, 1.0):
            journal.record(phase(t_s))
    return tmp_path / NAME


def read(path):
    reading = Reading(path)
    return list(reading.events()), reading.flaws


def test_events_come_back_numbered_and_equal(path):
    events, flaws = read(path)
    assert [event.seq for event in events] == [0, 1, 2]
    assert [event.t_s for event in events] == [0.5, 0.25, 1.0]
    assert flaws == []


def test_a_second_writer_is_refused(path):
    with pytest.raises(FileExistsError):
        Journal(path)


def test_every_prefix_is_read_or_its_torn_line_is_named(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        events, flaws = read(path)
        assert len(events) == whole[:length].count(b"\n")
        assert bool(flaws) == (length > 0 and whole[length - 1 : length] != b"\n")


@pytest.mark.parametrize("order", [(0, 2), (0, 1, 1, 2), (1, 0, 2), (1, 2)])
def test_lost_doubled_and_exchanged_lines_are_flaws(path, order):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[i] for i in order))
    assert read(path)[1]


def test_a_kind_of_a_newer_version_is_kept_and_is_a_flaw(path):
    with path.open("ab") as file:
        file.write(b'{"kind":"teleported","seq":3,"t_s":2.0,"member":"replica-0","to":"mars"}\n')
    events, flaws = read(path)
    assert events[-1] == Unknown(seq=3, t_s=2.0, member="replica-0", of_kind="teleported", data={"to": "mars"})
    assert "teleported" in flaws[0]


def test_a_new_field_of_a_known_kind_is_a_flaw(path):
    """What a newer version tells with it may matter; and a name that was damaged must not become a default."""
    with path.open("ab") as file:
        file.write(b'{"kind":"phase_started","seq":3,"t_s":2.0,"member":"runner","phase":"drain","colour":"red"}\n')
    events, (flaw,) = read(path)
    data = {"phase": "drain", "colour": "red"}
    assert events[-1] == Unknown(seq=3, t_s=2.0, member="runner", of_kind="phase_started", data=data)
    assert "unknown field `colour`" in flaw


def test_garbage_is_a_flaw_and_hides_nothing_after_it(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\x00garbage\n" + lines[1] + lines[2])
    events, flaws = read(path)
    assert len(events) == 3
    assert len(flaws) == 1


def test_a_disk_that_takes_no_more_breaks_the_journal_at_once(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(tmp_path / NAME) as journal:
        journal.record(phase(0.0))
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / NAME).stat().st_size + 10, hard))
        try:
            with pytest.raises(JournalBroken, match="a part of a line only"):
                journal.record(phase(1.0))
            with pytest.raises(JournalBroken, match="File too large"):
                journal.record(phase(2.0))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    events, flaws = read(tmp_path / NAME)
    assert len(events) == 1
    assert "torn" in flaws[0]


def test_a_step_with_everything_survives(tmp_path):
    step = Step(
        seq=0, t_s=1.0, member="replica-0", incarnation=2, step=5, committed=True, quorum_id=3, participants=2,
        healing=False, loss=6.5, grad_norm=None, tokens=256, lr=1e-3, duration_s=0.3, digest="ab", error=None,
    )  # fmt: skip
    with Journal(tmp_path / NAME) as journal:
        journal.record(step)
    assert read(tmp_path / NAME) == ([step], [])
