"""The learning rate is a function of the committed step: the same on every replica, whatever each has been through."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torchtitan.components.optimizer import LRSchedulersContainer

from training.healing import CommittedSchedule

STEPS = 20


class Optimizers(list[torch.optim.Optimizer]):
    """Like TorchTitan's container, with a manager that has committed as many updates as we say."""

    def __init__(self) -> None:
        super().__init__([torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2))], lr=1.0)])
        self.committed = 0
        self._ft_optimizer = SimpleNamespace(manager=SimpleNamespace(current_step=lambda: self.committed))

    def rate(self) -> float:
        return float(self[0].param_groups[0]["lr"])


def build(kind: type[Any], optimizers: Optimizers) -> Any:
    config = kind.Config(warmup_steps=4, decay_ratio=0.5, min_lr_factor=0.1)
    return config.build(optimizers=optimizers, training_steps=STEPS)


@pytest.fixture
def stock_rates() -> list[float]:
    """The rates of updates 1, 2, ... of a replica that commits every try, by TorchTitan itself."""
    optimizers = Optimizers()
    schedule = build(LRSchedulersContainer, optimizers)
    rates = []
    for _ in range(STEPS):
        rates.append(optimizers.rate())
        optimizers[0].step()
        schedule.step()
    return rates


def test_without_faults_it_is_the_stock_schedule(stock_rates: list[float]) -> None:
    optimizers = Optimizers()
    schedule = build(CommittedSchedule, optimizers)
    for committed, rate in enumerate(stock_rates):
        assert optimizers.rate() == rate
        optimizers.committed = committed + 1
        schedule.step()
    assert stock_rates[0] < stock_rates[3] == 1.0 > stock_rates[-1], "the test covers warm-up and decay"


def test_discarded_tries_do_not_move_it(stock_rates: list[float]) -> None:
    optimizers = Optimizers()
    schedule = build(CommittedSchedule, optimizers)
    for tries in (1, 3, 2):
        optimizers.committed += 1
        for _ in range(tries):
            schedule.step()
        assert optimizers.rate() == stock_rates[optimizers.committed]


def test_a_healed_replica_has_the_rate_of_its_donor(stock_rates: list[float]) -> None:
    donor, healed = Optimizers(), Optimizers()
    giving, receiving = build(CommittedSchedule, donor), build(CommittedSchedule, healed)
    donor.committed = 15
    giving.step()
    receiving.load_state_dict(giving.state_dict())
    assert healed.rate() == donor.rate() == stock_rates[15]
    assert receiving.schedulers[0].get_last_lr() == [stock_rates[15]]
