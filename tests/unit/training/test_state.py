"""The state that a heal hands over: all of it, into the tensors that are there."""

from __future__ import annotations

import copy

import pytest
import torch

from training import state
from training.digest import digest


class Model(torch.nn.Module):
    """A weight, a buffer that belongs to the state and one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("table", torch.zeros(2), persistent=False)


def trained(steps: int, seed: int = 3) -> tuple[Model, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for _ in range(steps):
        optimizer.zero_grad()
        model.layer(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        model.seen += 1
    return model, optimizer


def test_who_took_a_state_has_all_of_it_and_goes_on_as_who_gave_it() -> None:
    (model, optimizer), (other, others) = trained(3), trained(1, seed=4)
    optimizer.param_groups[0]["lr"] = 0.05
    given = copy.deepcopy(state.entries([model], [optimizer]))
    state.take(given, [other], [others])
    assert digest(state.entries([other], [others])) == digest(given)
    for one, by in ((model, optimizer), (other, others)):
        by.zero_grad()
        one.layer(torch.ones(1, 3)).sum().backward()
        by.step()
    assert digest(state.entries([other], [others])) == digest(state.entries([model], [optimizer]))


def test_after_a_step_only_the_rates_are_others_than_before() -> None:
    model, optimizer = trained(2)
    before = state.entries([model], [optimizer])
    model.layer(torch.ones(1, 3)).sum().backward()
    optimizer.param_groups[0]["lr"] = 0.05
    optimizer.step()
    assert digest(before) != digest(state.entries([model], [optimizer]))
    assert digest(before | state.rates([optimizer])) == digest(state.entries([model], [optimizer]))


def test_a_state_is_taken_into_the_tensors_that_are_there() -> None:
    (model, optimizer), (other, others) = trained(3), trained(1, seed=4)
    before = state.entries([other], [others])
    state.take(state.entries([model], [optimizer]), [other], [others])
    assert digest(before) == digest(state.entries([model], [optimizer]))


def test_what_is_handed_over_is_live_and_of_named_things_only() -> None:
    model, optimizer = trained(1)
    entries = state.entries([model], [optimizer])
    moments = [f"optimizer.0.0.{position}.{key}" for position in (0, 1) for key in ("step", "exp_avg", "exp_avg_sq")]
    assert sorted(entries) == sorted(
        ["model.0.layer.weight", "model.0.layer.bias", "model.0.seen", "optimizer.0.0.lr", *moments]
    )
    model.seen += 1
    assert torch.equal(torch.as_tensor(entries["model.0.seen"]), model.seen)


def test_a_state_of_another_layout_is_refused_before_anything_is_taken() -> None:
    model, optimizer = trained(1)
    before = copy.deepcopy(state.entries([model], [optimizer]))
    other, others = trained(3)
    given = state.entries([other], [others])
    del given["model.0.seen"]
    with pytest.raises(ValueError, match=r"model\.0\.seen is in one of the two only"):
        state.take(given, [model], [optimizer])
    assert digest(state.entries([model], [optimizer])) == digest(before)
