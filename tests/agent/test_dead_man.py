"""Whoever is killed at whatever moment, nothing is left. By the hundred: tests/benchmarks/dead_man.py."""

from __future__ import annotations

import random

import pytest

from tests.agent.conftest import Agent, Pod
from tests.agent.trials import VICTIMS, trial

TRIALS = 3


@pytest.mark.parametrize("victim", VICTIMS)
def test_nothing_is_left(agent: Agent, pod: Pod, victim: str) -> None:
    for number in range(TRIALS):
        done = trial(agent, pod, victim, random.Random(f"{victim} {number}"))
        assert done.held and not done.left
