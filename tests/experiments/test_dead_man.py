"""Whoever of a run is killed, every fault that is held ends. By the hundred: tests/benchmarks/dead_man_run.py."""

from __future__ import annotations

import random

import pytest

from chaos.platforms.local import doctor
from tests.experiments.dead_man import VICTIMS, trial


@pytest.mark.parametrize("victim", VICTIMS)
def test_every_fault_ends_and_nothing_is_left(tmp_path, chaos_env, victim):
    if "namespaces" not in doctor.available():
        pytest.skip("this machine refuses namespaces")
    done = trial(tmp_path, chaos_env, victim, random.Random(victim))
    assert done.over_s and not done.left
