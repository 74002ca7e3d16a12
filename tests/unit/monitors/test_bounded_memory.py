"""`bounded_memory`: training does not eat the machine's memory."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest
from journals import Story, judge_live

from chaos.api import Finding, Outcome, events
from chaos.monitors.bounded_memory import MB, BoundedMemory, BoundedMemoryLimits


def run(steps: int, used_mb: Callable[[int], float], **limits: int) -> Finding:
    """One replica reports what it uses at each step, the other two always the same."""
    story = Story(steps=10_000).deploy().train(steps)
    story.told = [
        _with(event, used_mb(event.step) if event.member == "replica-1" else 500.0)
        if isinstance(event, events.Step)
        else event
        for event in story.told
    ]
    findings, _ = judge_live(story.drain().end(), kinds=[BoundedMemory], bounded_memory=BoundedMemoryLimits(**limits))
    return findings["bounded_memory"]


def _with(event: events.Step, used_mb: float) -> events.Step:
    return msgspec.structs.replace(event, rss_bytes=int(used_mb * MB))


@pytest.mark.parametrize(("mb_a_step", "outcome"), [(0.09, Outcome.PASS), (0.11, Outcome.FAIL)])
def test_a_leak(mb_a_step: float, outcome: Outcome) -> None:
    chance = random.Random(1)
    found = run(700, lambda step: 500 + step * mb_a_step + chance.uniform(-2, 2))
    assert found.outcome is outcome
    assert found.measures["growth_mb_per_1000_steps"] == pytest.approx(mb_a_step * 1000, rel=0.08)
    assert found.measures["lives_judged"] == 3
    if outcome is Outcome.FAIL:
        assert found.reading.startswith("the memory of replica-1 grew by 1")
        assert found.reading.endswith("MB per 1000 steps (at most 100)")


@pytest.mark.parametrize(
    "used_mb",
    [
        lambda step: 500.0 + (300.0 if step > 350 else 0.0),
        lambda step: 500.0 + (900.0 if step % 10 == 0 else 0.0),
        lambda step: min(800.0, 500.0 + step * 5.0),
        lambda step: 500.0 - step * 0.2,
    ],
    ids=["one jump", "spikes", "warm-up", "shrinking"],
)
def test_what_is_no_leak(used_mb: Callable[[int], float]) -> None:
    assert run(700, used_mb).outcome is Outcome.PASS


def test_a_short_run_says_nothing() -> None:
    found = run(399, lambda step: 500.0)
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == "no life reported its memory for 400 steps, the longest for 399"


def test_a_leak_is_seen_in_a_life_that_is_over() -> None:
    story = Story(steps=10_000).deploy().train(450).kill("replica-1").wait(1.0).discard().regroup().train(20)
    story.told = [
        _with(event, 500 + event.step if event.member == "replica-1" else 500.0)
        if isinstance(event, events.Step)
        else event
        for event in story.told
    ]
    findings, _ = judge_live(story.drain().end(), kinds=[BoundedMemory])
    assert findings["bounded_memory"].outcome is Outcome.FAIL


def test_a_long_life_costs_no_more_than_a_short_one() -> None:
    """Thinned out to a bounded number of samples, the growth is the same."""
    found = run(3000, lambda step: 500 + step * 0.05, steps_min=2000)
    assert found.measures["growth_mb_per_1000_steps"] == pytest.approx(50.0)


def test_steps_that_tell_no_memory_do_not_count() -> None:
    """replica-1 tells of it at every second step, which is too seldom."""
    story = Story(steps=10_000).deploy().train(700)
    story.alter(lambda event: isinstance(event, events.Step), rss_bytes=500_000_000)
    story.alter(
        lambda event: isinstance(event, events.Step) and event.member == "replica-1" and event.step % 2 == 1,
        rss_bytes=None,
    )
    findings, _ = judge_live(story.drain().end(), kinds=[BoundedMemory])
    assert findings["bounded_memory"].measures["lives_judged"] == 2
