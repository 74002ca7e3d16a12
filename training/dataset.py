"""Where the text comes from: the embedded corpus, or a local copy of C4; never the network.

The batch of update k on shard r depends on k and r only (see ``trainer.ReplicaTrainer.batch_generator``).
The embedded corpus and its tokenizer are made by ``python -m training.data.make``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EMBEDDED_DATA = Path(__file__).parent / "data"


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
