"""A digest of a training state: equal for equal bytes, whatever replica they are on and in whatever order they come.

It covers the parameters, every tensor of the optimizer's state, the rate of every parameter group and the number of
committed updates, so one changed bit, a stale rate or a wrong step shows. On the CPU it is xxh3 over the raw bytes:
12 ms for the 74 MB of the debug model, where a step takes 200 ms and more. On a GPU the bytes stay there: each tensor
is summed with fixed odd weights (multilinear hashing modulo 2**64: Dietzfelbinger, "Universal hashing and k-wise
independent random variables via integer arithmetic without primes", STACS 1996), and xxh3 takes the sums, so digests
compare between replicas on one kind of device. It is no protection against someone who means harm.
Sharded tensors are digested by this rank's shard; replicas of one layout compare rank by rank.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import torch
import xxhash
from torch.distributed.tensor import DTensor

CHUNK_WORDS = 1 << 22
"""Words of four bytes that are weighed at once: 100 MB of a GPU's memory for the weights and the products."""


def digest(entries: Iterable[tuple[str, torch.Tensor | float | int]]) -> str:
    """32 hex digits for named tensors and numbers; names must differ."""
    ordered = sorted(entries, key=lambda entry: entry[0])
    assert len({name for name, _ in ordered}) == len(ordered), "two entries of one name"
    state = xxhash.xxh3_128()
    elsewhere: list[torch.Tensor] = []
    for name, value in ordered:
        if isinstance(value, torch.Tensor):
            local = _local(value)
            _feed(state, f"{name}|{local.dtype}|{tuple(local.shape)}".encode())
            raw = local.reshape(-1).view(torch.uint8)
            if raw.device.type == "cpu":
                state.update(memoryview(raw.numpy()))
            else:
                elsewhere.extend(weighed(raw))
        else:
            _feed(state, f"{name}|{type(value).__name__}".encode())
            state.update(struct.pack("<d", value))
    if elsewhere:
        state.update(memoryview(torch.stack(elsewhere).cpu().numpy()))
    return state.hexdigest()


def weighed(raw: torch.Tensor) -> Iterator[torch.Tensor]:
    """One sum per chunk of ``raw`` (uint8, flat), left on its device; any changed word of a chunk changes its sum."""
    words = torch.nn.functional.pad(raw, (0, -raw.numel() % 4)).view(torch.int32)
    weights = _weights(raw.device)
    for chunk in words.split(CHUNK_WORDS):
        yield (chunk * weights[: chunk.numel()]).sum()


@lru_cache
def _weights(device: torch.device) -> torch.Tensor:
    """The odd weights, int64: the same in every replica."""
    drawn = torch.randint(-(2**62), 2**62, (CHUNK_WORDS,), generator=torch.Generator().manual_seed(0))
    return (2 * drawn + 1).to(device)


def state_entries(
    model_parts: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer], step: int
) -> Iterator[tuple[str, torch.Tensor | float | int]]:
    """The entries of a training state. Reads the live tensors: call it between two steps, on the training thread."""
    yield "step", step
    for part, model in enumerate(model_parts):
        for name, parameter in model.named_parameters():
            yield f"model.{part}.{name}", parameter
    for index, optimizer in enumerate(optimizers):
        for group_index, group in enumerate(optimizer.param_groups):
            yield f"optimizer.{index}.{group_index}.lr", float(group["lr"])
            for position, parameter in enumerate(group["params"]):
                for key, value in optimizer.state.get(parameter, {}).items():
                    yield f"optimizer.{index}.{group_index}.{position}.{key}", value


def _feed(state: Any, text: bytes) -> None:
    """Length first, so that no two different sequences of texts feed the same bytes."""
    state.update(struct.pack("<q", len(text)))
    state.update(text)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's bytes, in order."""
    plain = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return plain.detach().contiguous()
