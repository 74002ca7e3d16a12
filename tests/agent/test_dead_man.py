"""Whoever is killed at whatever moment, nothing is left. By the hundred: tests/benchmarks/dead_man.py."""

from __future__ import annotations

import random

import pytest

from tests.agent.grounds import Grounds
from tests.agent.pods import SLOW, Agent
from tests.agent.trials import VICTIMS, trial

TRIALS = 3 if SLOW == 1 else 1


@pytest.mark.parametrize(
    "victim", [pytest.param(one, marks=[pytest.mark.kernel] if one == "agent" else []) for one in VICTIMS]
)
def test_nothing_is_left(agent: Agent, grounds: Grounds, victim: str) -> None:
    for number in range(TRIALS):
        done = trial(agent, grounds, victim, random.Random(f"{victim} {number}"))
        assert done.held and not done.left
