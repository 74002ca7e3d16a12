"""The state of a replica by name: what a heal hands over, what a checkpoint keeps and what a digest compares.

The tensors are the live ones, nothing is copied. TorchTitan's own state dicts are made for checkpoints that other
layouts can load: at every call they split fused weights into copies and name the optimizer's state anew. Replicas of
one job have one layout and need neither. Of a sharded tensor it is this rank's part.
Call these between two steps, on the training thread: in a forward pass FSDP has other parameters in their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch.distributed.tensor import DTensor


def entries(
    model_parts: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer]
) -> dict[str, torch.Tensor | float]:
    """Parameters, buffers that are kept, the optimizers' state, and the rate of every parameter group."""
    optimizers = list(optimizers)
    found: dict[str, torch.Tensor | float] = {}
    for part, model in enumerate(model_parts):
        for name, tensor in (*model.named_parameters(), *_kept_buffers(model)):
            found[f"model.{part}.{name}"] = local(tensor)
    for index, optimizer in enumerate(optimizers):
        for group_index, group in enumerate(optimizer.param_groups):
            for position, parameter in enumerate(group["params"]):
                for key, tensor in optimizer.state.get(parameter, {}).items():
                    found[f"optimizer.{index}.{group_index}.{position}.{key}"] = local(tensor)
    return found | rates(optimizers)


def rates(optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, torch.Tensor | float]:
    """The entries that are no tensors: all that a step puts others in the place of."""
    return {
        f"optimizer.{index}.{group_index}.lr": float(group["lr"])
        for index, optimizer in enumerate(optimizers)
        for group_index, group in enumerate(optimizer.param_groups)
    }


def take(
    given: Mapping[str, torch.Tensor | float],
    model_parts: Iterable[torch.nn.Module],
    optimizers: Iterable[torch.optim.Optimizer],
) -> None:
    """Be in the state ``given``, into the tensors that are there. Raises ValueError when its names are others."""
    optimizers = list(optimizers)
    live = entries(model_parts, optimizers)
    if strange := live.keys() ^ given.keys():
        raise ValueError(f"a state of another layout: {min(strange)} is in one of the two only")
    with torch.no_grad():
        for name, value in live.items():
            if isinstance(value, torch.Tensor):
                value.copy_(given[name])
    for index, optimizer in enumerate(optimizers):
        for group_index, group in enumerate(optimizer.param_groups):
            group["lr"] = given[f"optimizer.{index}.{group_index}.lr"]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part."""
    with torch.no_grad():
        return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def _kept_buffers(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(prefix, recurse=False):
            if name.rpartition(".")[2] not in module._non_persistent_buffers_set:
                yield name, buffer
