"""What a replica tells of its quorums."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from training import events
from training.observe import Observer


def result(quorum_id: int, *names: str) -> Any:
    """What TorchFT's manager answers to one who need not heal."""
    ids = [f"{name}:some-uuid" for name in names]
    return SimpleNamespace(
        quorum_id=quorum_id, replica_ids=ids, max_world_size=len(ids), max_step=7, heal=False
    )  # fmt: skip


def told(*results: Any) -> list[tuple[int, list[str] | None]]:
    seen: list[events.Event] = []
    observer = Observer(seen.append, lambda: None)
    for one in results:
        observer.quorum(one, 7)
    return [(event.quorum_id, event.members) for event in seen if isinstance(event, events.Quorum)]


def test_a_quorum_is_told_of_once() -> None:
    assert told(result(1, "a", "b"), result(1, "a", "b"), result(1, "b", "a")) == [(1, ["a", "b"])]


def test_a_new_id_and_new_members_are_told_of() -> None:
    assert told(result(1, "a", "b"), result(2, "a", "b"), result(2, "a")) == [
        (1, ["a", "b"]),
        (2, ["a", "b"]),
        (2, ["a"]),
    ]
