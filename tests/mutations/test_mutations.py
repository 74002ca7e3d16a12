"""Every mutation of every recorded run: the right monitor notices what is broken, and none cries at what is not."""

from __future__ import annotations

import pytest

from chaos.api import Outcome
from chaos.registry import monitors
from tests.golden import recorded
from tests.mutations import score
from tests.mutations.mutation import JOURNAL, MUTATIONS

IDLE = {"bounded_memory", "fast_path", "placement"}
"""Monitors that judge longer runs than those that are recorded, or runs on a cluster."""


@pytest.mark.parametrize("name", recorded.names())
def test_a_recorded_run_passes(name: str) -> None:
    verdict = score.run(name).verdict()
    assert verdict.outcome is Outcome.PASS, verdict.reasons


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_noticed_by_the_right_monitor_or_by_none(name: str) -> None:
    tried = list(score.trials(MUTATIONS[name]))
    assert tried, "no recorded run has a place for it"
    wrong = [one.said for one in tried if not one.right]
    assert not wrong, f"{len(wrong)} of {len(tried)}:\n" + "\n".join(wrong[:5])


def test_every_monitor_has_a_recorded_run_and_a_mutation_to_notice() -> None:
    assert set(score.idle()) <= IDLE
    speakers = {name for mutation in MUTATIONS.values() for name in mutation.speakers}
    assert speakers - {JOURNAL} <= monitors().keys(), "a mutation waits for a monitor that does not exist"
    assert monitors().keys() - speakers <= IDLE
