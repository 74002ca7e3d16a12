"""The guard against updates by gradients whose norm is no finite number."""

from __future__ import annotations

import pytest
import torch

from training import guard, harm


def clipped(harmed: float | None = None) -> list[torch.Tensor | None]:
    """Gradients of a small model as TorchTitan's trainer has them at the vote, one element replaced before."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
    model(torch.randn(3, 8)).square().sum().backward()
    weight = model[0].weight.grad
    assert isinstance(weight, torch.Tensor)
    if harmed is not None:
        weight[1, 2] = harmed
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return [parameter.grad for parameter in model.parameters()]


def test_an_ordinary_update_passes_and_what_is_not_trained_is_no_matter() -> None:
    assert guard.finite(clipped())
    assert guard.finite([None, *clipped(), torch.zeros(0)])
    assert guard.finite([*clipped(), torch.zeros(1)]), "a parameter that this batch did not use"
    assert not guard.finite([*clipped(float("inf")), torch.zeros(1)])


@pytest.mark.parametrize("harmed", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_one_element_that_spoils_the_norm_is_seen_in_every_gradient(harmed: float) -> None:
    assert not guard.finite(clipped(harmed))


def test_what_a_fault_does_to_a_gradient_is_seen() -> None:
    for harmful in (harm.put_nan, harm.flip_gradient):
        gradient = torch.randn(100) * 0.01
        harmful(gradient)
        other = torch.nn.Parameter(torch.zeros(3))
        other.grad = torch.randn(3)
        torch.nn.utils.clip_grads_with_norm_([other], 1.0, gradient.norm())
        assert not guard.finite([other.grad]), harmful.__name__
