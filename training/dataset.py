"""Where the text comes from: the embedded corpus, or a local copy of C4; never the network. And its batches by number.

The batch of update k on shard r depends on k and r only (see ``trainer.ReplicaTrainer.batch_generator``).
The embedded corpus and its tokenizer are made by ``python -m training.data.make``.
"""

from __future__ import annotations

import json
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from training.announce import LINE_BYTES_MAX, Place

EMBEDDED_DATA = Path(__file__).parent / "data"
PLACE_BYTES_MAX = LINE_BYTES_MAX // 2


def config(data: str) -> Any:
    """TorchTitan's dataloader configuration for the folder ``data``; empty means the embedded corpus."""
    from torchtitan.hf_datasets import DatasetConfig
    from torchtitan.hf_datasets.text_datasets import DATASETS, HuggingFaceTextDataLoader

    if data:
        return HuggingFaceTextDataLoader.Config(dataset="c4", dataset_path=data)
    DATASETS["embedded"] = DatasetConfig(path=str(EMBEDDED_DATA), loader=_in_memory, sample_processor=_text)
    return HuggingFaceTextDataLoader.Config(dataset="embedded", dataset_path=str(EMBEDDED_DATA))


def _in_memory(folder: str) -> Any:
    """All documents at once: no cache folder, so no lock between the replicas of one machine."""
    from datasets import Dataset

    lines = (Path(folder) / "corpus.jsonl").read_text().splitlines()
    return Dataset.from_list([json.loads(line) for line in lines])


def _text(sample: dict[str, Any]) -> str:
    return str(sample["text"])


class Batches:
    """The batches of one shard, numbered from 0. The one in use can be had again, and one more be read ahead.

    A loader reads in order only. Where another life of the shard has told its ``Place``, reading goes on from there, so
    that a replica that comes back late in a job does not keep its peers waiting while it reads all that they have.
    """

    def __init__(self, loader: Any, read: Callable[[Any], Iterator[Any]]) -> None:
        """``loader``: one with ``state_dict``, at its beginning; ``read`` makes an iterator over what it has left."""
        self._loader = loader
        self._read = read
        self._source = read(loader)
        self._next = 0
        self._there: deque[tuple[int, Any]] = deque()
        self.known: Place | None = None
        """Where to go on instead of reading up to there; set on any thread."""

    def at(self, number: int) -> tuple[int, Any]:
        """Batch ``number``, after its number. A later one, where ``number`` was passed over: it is not had again."""
        while self._there and self._there[0][0] < number:
            self._there.popleft()
        if not self._there:
            self._skip_to(number)
            self._take()
        return self._there[0]

    def read_ahead(self) -> None:
        """Read the batch after the one in use, unless it was."""
        if len(self._there) == 1:
            self._take()

    def place(self) -> Place | None:
        """After all that was read. None in the middle of a document that is too long to be told."""
        state = pickle.dumps(self._loader.state_dict())
        return Place(read=self._next, state=state) if len(state) <= PLACE_BYTES_MAX else None

    def _skip_to(self, number: int) -> None:
        place = self.known
        if place is not None and self._next < place.read <= number:
            self._loader.load_state_dict(pickle.loads(place.state))
            self._source, self._next = self._read(self._loader), place.read
        while self._next < number:
            next(self._source)
            self._next += 1

    def _take(self) -> None:
        self._there.append((self._next, next(self._source)))
        self._next += 1
