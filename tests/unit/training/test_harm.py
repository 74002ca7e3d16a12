"""What a fault point does to a tensor: one element, always the same one."""

from __future__ import annotations

import pytest
import torch

from training import harm

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def values(kind: torch.dtype) -> torch.Tensor:
    return torch.tensor([[0.01, -0.5], [0.25, 0.0]], dtype=kind)


@pytest.mark.parametrize("kind", TYPES)
def test_a_weight_doubles_or_halves_and_nothing_else_changes(kind: torch.dtype) -> None:
    tensor = torch.nn.Parameter(values(kind))
    harm.flip_weight(tensor)
    changed = tensor.detach() != values(kind)
    assert changed.sum() == 1
    assert tensor.detach()[changed].item() in (-1.0, -0.25)
    harm.flip_weight(tensor)
    harm.flip_weight(tensor)
    assert torch.isfinite(tensor).all()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_gradient_becomes_huge_but_stays_a_number(kind: torch.dtype) -> None:
    tensor = values(kind)
    harm.flip_gradient(tensor)
    assert (tensor != values(kind)).sum() == 1
    assert tensor.abs().max() > 1e30
    assert torch.isfinite(tensor).all()


@pytest.mark.parametrize("kind", TYPES)
def test_one_element_is_not_a_number(kind: torch.dtype) -> None:
    tensor = values(kind)
    harm.put_nan(tensor)
    assert torch.isnan(tensor).tolist() == [[True, False], [False, False]]
