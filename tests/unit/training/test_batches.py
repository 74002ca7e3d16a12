"""Batches by number, from TorchTitan's loader over the embedded corpus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from training import dataset
from training.dataset import Batches

torch = pytest.importorskip("torch")

ALL = 40
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # in torchdata


class Shard:
    """One shard, with a count of what was read of it."""

    def __init__(self) -> None:
        from torchtitan.components.tokenizer import HuggingFaceTokenizer

        self.taken = 0
        tokenizer = HuggingFaceTokenizer.Config().build(tokenizer_path=str(dataset.EMBEDDED_DATA))
        parts = {"tokenizer": tokenizer, "seq_len": 128, "local_batch_size": 2}
        self.batches = Batches(dataset.config("").build(dp_world_size=3, dp_rank=1, **parts), self._read)

    def _read(self, loader: Any) -> Iterator[Any]:
        for batch in loader:
            self.taken += 1
            yield batch

    def at(self, number: int) -> tuple[int, list[int]]:
        number, (inputs, _) = self.batches.at(number)
        return number, inputs["input"].flatten().tolist()


@pytest.fixture(scope="module")
def in_order() -> list[list[int]]:
    shard = Shard()
    return [shard.at(number)[1] for number in range(ALL)]


def test_a_batch_can_be_had_again_and_those_passed_over_are_not(in_order: list[list[int]]) -> None:
    shard = Shard()
    assert [shard.at(number) for number in (0, 0, 1, 5, 5)] == [(n, in_order[n]) for n in (0, 0, 1, 5, 5)]
    assert shard.at(2) == (5, in_order[5])
    assert shard.taken == 6


def test_one_is_read_ahead_and_used_when_its_turn_comes(in_order: list[list[int]]) -> None:
    shard = Shard()
    for number in (0, 1, 1, 7):
        assert shard.at(number) == (number, in_order[number])
        for _ in range(2):
            shard.batches.read_ahead()
    assert shard.taken == 9


def test_reading_goes_on_from_a_place_that_another_life_told(in_order: list[list[int]]) -> None:
    one = Shard()
    one.at(29)
    place = one.batches.place()
    assert place is not None and place.read == 30
    other = Shard()
    other.at(0)
    other.batches.known = place
    assert other.at(29) == (29, in_order[29]), "the place is behind what is asked for"
    assert (other.taken, other.at(31)) == (30, (31, in_order[31]))
    late = Shard()
    late.batches.known = place
    assert [late.at(number) for number in (31, 32, 39)] == [(n, in_order[n]) for n in (31, 32, 39)]
    assert late.taken == 10


def test_a_place_too_long_for_a_line_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = Shard()
    shard.at(0)
    monkeypatch.setattr(dataset, "PLACE_BYTES_MAX", 100)
    assert shard.batches.place() is None
