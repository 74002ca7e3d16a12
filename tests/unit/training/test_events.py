"""Event files: what a reader may rely on."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import msgspec
import pytest

from training import events

KINDS = {
    "trainer_started", "quorum", "heal_started", "heal_ended", "heal_served", "step", "trainer_finished",
    "trainer_failed", "controller_started", "member_attached", "trainer_spawned", "member_lost", "trainer_lost",
    "attach_failed", "controller_finished", "lighthouse_started", "fault_point_hit",
}  # fmt: skip


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_kinds_are_those_agreed() -> None:
    tags = {msgspec.inspect.type_info(kind).tag for kind in events.Event.__subclasses__()}  # type: ignore[union-attr]
    assert tags == KINDS


def test_a_line_is_flat_and_stamped(tmp_path: Path) -> None:
    writer = events.Writer(tmp_path / "e.jsonl", member="replica-1", incarnation=2)
    writer.emit(events.HealServed(step=3, destinations=["replica-0"]))
    writer.close()
    (line,) = read(tmp_path / "e.jsonl")
    assert list(line)[:6] == ["kind", "mono_s", "wall_s", "member", "incarnation", "seq"]
    assert (line["kind"], line["member"], line["incarnation"], line["seq"]) == ("heal_served", "replica-1", 2, 0)
    assert (line["step"], line["destinations"]) == (3, ["replica-0"])


def test_a_number_that_is_none_becomes_null(tmp_path: Path) -> None:
    writer = events.Writer(tmp_path / "e.jsonl", member="replica-1", incarnation=1)
    writer.emit(
        events.Step(
            step=1, committed=False, quorum_id=1, participants=2, healing=False, loss=float("nan"), grad_norm=None,
            tokens=0, lr=0.1, duration_s=1.0, digest=None, error="x",
            batch=1, gradient_scale=None, rss_bytes=1,
        )
    )  # fmt: skip
    writer.close()
    (line,) = read(tmp_path / "e.jsonl")
    assert line["loss"] is None


def test_threads_leave_no_gap_and_no_torn_line(tmp_path: Path) -> None:
    writer = events.Writer(tmp_path / "e.jsonl", member="m", incarnation=1)

    def many() -> None:
        for _ in range(200):
            writer.emit(events.TrainerFailed(error="é" * 100))

    threads = [threading.Thread(target=many) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert [line["seq"] for line in read(tmp_path / "e.jsonl")] == list(range(1000))


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        events.Writer(tmp_path / "missing" / "e.jsonl", member="m", incarnation=1)
