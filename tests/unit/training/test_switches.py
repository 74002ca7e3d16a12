"""Each setting that brings a known bug back brings that one, and the defaults bring none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchtitan.components.checkpointer.base import ModelWrapper
from torchtitan.components.optimizer import LRSchedulersContainer
from torchtitan.experiments.torchft.checkpoint import TorchFTCheckpointManager
from torchtitan.experiments.torchft.optimizer import TorchFTOptimizersContainer

from training import healing
from training.settings import Settings

OURS = (healing.CurrentOptimizers, healing.CommittedSchedule, TorchFTCheckpointManager)


def parts(**changes: Any) -> tuple[type, ...]:
    """What a job with these settings is built of."""
    settings = Settings(**changes)
    return tuple(config._owner for config in healing.configs(settings.heal, settings.schedule).values())


@pytest.mark.parametrize(
    ("changes", "stock"),
    [
        ({}, {}),
        ({"heal": "off"}, {}),
        ({"heal": "stock"}, {0: TorchFTOptimizersContainer}),
        ({"heal": "stale_rate"}, {0: TorchFTOptimizersContainer}),
        ({"heal": "stale_weights"}, {2: healing.BuildTimeCheckpoints}),
        ({"schedule": "tries"}, {1: LRSchedulersContainer}),
    ],
)
def test_a_setting_exchanges_one_part(changes: dict[str, Any], stock: dict[int, type]) -> None:
    assert parts(**changes) == tuple(stock.get(place, ours) for place, ours in enumerate(OURS))


def split(module: torch.nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """As TorchTitan's fused attention does on save: copies in the place of the weight."""
    fused = state.pop(prefix + "weight")
    state |= {prefix + "first": fused[:1].clone(), prefix + "rest": fused[1:].clone()}


def test_weights_of_build_time_are_old_where_a_layer_hands_out_copies() -> None:
    model = torch.nn.Linear(2, 3)
    model.register_state_dict_post_hook(split)
    stale, right = healing.BuildTimeWeights(model), ModelWrapper(model)
    first = model.weight[:1].detach().clone()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1
    assert torch.equal(right.state_dict()["first"], model.weight[:1])
    assert torch.equal(stale.state_dict()["first"], first)
    assert torch.equal(stale.state_dict()["bias"], model.bias)
