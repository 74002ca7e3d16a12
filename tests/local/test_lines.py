"""Lines become events: whole, in order, and nothing is lost silently."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from clusters import toy_cluster
from hypothesis import given
from hypothesis import strategies as st

from chaos.model.events import ControllerStarted, Event, EventsLost, HealServed, MemberExited, Step, Unknown
from chaos.platforms.lines import LINE_BYTES_MAX, Lines


def line(seq: int, kind: str = "heal_served", **fields: Any) -> str:
    head = {"kind": kind, "mono_s": 100.0 + seq, "wall_s": 1.7e9, "member": "replica-0", "incarnation": 2, "seq": seq}
    return json.dumps(head | ({"step": seq, "destinations": ["replica-1"]} if kind == "heal_served" else {}) | fields)


def read(*lines: str) -> list[Event]:
    return Lines("replica-0", 2, 90.0).feed("".join(text + "\n" for text in lines).encode())


def test_a_line_becomes_an_event_on_the_runs_clock() -> None:
    served = HealServed(t_s=10.0, member="replica-0", incarnation=2, step=0, destinations=("replica-1",))
    assert read(line(0)) == [served]


@given(st.lists(st.integers(1, 60), max_size=40))
def test_bytes_may_arrive_in_any_pieces(sizes: list[int]) -> None:
    data = "".join(line(seq, destinations=["é"]) + "\n" for seq in range(3)).encode()
    lines, found = Lines("replica-0", 2, 90.0), []
    for size in sizes:
        found += lines.feed(data[:size])
        data = data[size:]
    found += lines.feed(data)
    assert [event.step for event in found if isinstance(event, HealServed)] == [0, 1, 2]
    assert len(found) == 3 and lines.end() == []


def test_a_gap_is_a_loss_of_known_size() -> None:
    kinds = [(event.kind, getattr(event, "count", None)) for event in read(line(0), line(3), line(4))]
    assert kinds == [("heal_served", None), ("events_lost", 2), ("heal_served", None), ("heal_served", None)]
    assert read(line(1))[0].kind == "events_lost", "the first line is missing"


def test_a_new_writer_is_no_loss_but_a_step_back_is() -> None:
    assert [event.kind for event in read(line(0), line(1), line(0))] == ["heal_served"] * 3
    assert [event.kind for event in read(line(0), line(1), line(1))][2] == "events_lost"


@pytest.mark.parametrize(
    "text",
    [
        line(0, kind="of_tomorrow"),
        line(0, step="many"),
        line(0, kind="run_ended", completed=True, reason="forged"),
        line(0, member="replica-1"),
        line(0, incarnation=1),
        line(0).replace('"seq": 0', '"seq": null'),
    ],
)
def test_what_does_not_fit_is_kept_as_unknown(text: str) -> None:
    (event,) = read(text)
    assert isinstance(event, Unknown)
    assert event.of_kind == json.loads(text)["kind"] and event.data == json.loads(text)
    assert (event.member, event.incarnation) == ("replica-0", 2)


@pytest.mark.parametrize("text", ["{", "[1]", "hello", "\x00"])
def test_what_cannot_be_read_is_a_loss(text: str) -> None:
    (event,) = read(text)
    assert isinstance(event, EventsLost) and event.count == 1


def test_a_diverged_loss_can_be_read() -> None:
    step = {"step": 1, "committed": True, "quorum_id": 1, "participants": 2, "healing": False, "loss": math.nan}
    (event,) = read(line(0, "step", **step, grad_norm=None, tokens=4, lr=1, duration_s=0.1, digest=None, error=None))
    assert isinstance(event, Step) and event.loss is not None and math.isnan(event.loss)


def test_an_unfinished_or_endless_line_is_a_loss() -> None:
    lines = Lines("replica-0", 2, 90.0)
    assert lines.feed(line(0).encode()) == []
    assert [event.kind for event in lines.end()] == ["events_lost"]
    assert [event.kind for event in lines.feed(b"x" * (LINE_BYTES_MAX + 1))] == ["events_lost"]


@pytest.mark.anyio
async def test_a_members_file_is_followed_to_its_end(tmp_path: Path, isolation: str) -> None:
    head = {"kind": "controller_started", "mono_s": 1.0, "wall_s": 1.0, "member": "controller", "incarnation": 1}
    whole = [json.dumps(head | {"seq": seq, "replicas": seq}) + "\n" for seq in range(1, 40)]

    def seen(replicas: int) -> Any:
        return lambda event: isinstance(event, ControllerStarted) and event.replicas == replicas

    async with toy_cluster(tmp_path, isolation) as running:
        await running.ask("controller", "append", text=whole[0] + whole[1][:50])
        await running.journal.wait(seen(1))
        await running.ask("controller", "append", text=whole[1][50:] + whole[4])
        await running.journal.wait(seen(5))
        await running.ask("controller", "append", text="".join(whole[5:]) + "{cut")
        await running.ask("controller", "exit", status=1)
        await running.journal.ready("controller", 2)
        events = running.journal.of("controller")
    first = events[1 : events.index(next(event for event in events if isinstance(event, MemberExited))) + 1]
    assert [e.replicas for e in first if isinstance(e, ControllerStarted)] == [2, 1, 2, *range(5, 40)]
    kinds = [event.kind for event in first]
    assert kinds[3] == "events_lost" and kinds[-2:] == ["events_lost", "member_exited"]
    assert [event.count for event in first if isinstance(event, EventsLost)] == [2, 1]
