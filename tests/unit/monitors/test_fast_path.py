"""`fast_path`: gradients by RDMA, by TCP, by both in turn, and those that nobody counted."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from journals import Story

from chaos.api import Finding, History, Outcome, events
from chaos.monitors.fast_path import FastPath, FastPathLimits

MB = 1_000_000
STEPS = 4
"""Between two looks."""


class Counted:
    """A story whose replicas are looked at now and then."""

    def __init__(self) -> None:
        self.story = Story().deploy()
        self.bytes: dict[str, tuple[int | None, int]] = dict.fromkeys(self.story.replicas, (0, 0))
        self.look()

    def look(self) -> Counted:
        for name, (over_rdma, over_ethernet) in self.bytes.items():
            about = {"name": name, "member_incarnation": self.story.incarnation[name]}
            self.story.say(
                events.BytesCarried, "runner", 0.01, **about, rdma_bytes=over_rdma, ethernet_bytes=over_ethernet
            )
        return self

    def move(self, over_rdma: int, over_ethernet: int, who: tuple[str, ...] = ()) -> Counted:
        """A window in which the group commits steps, and all (or these) move so many MB more."""
        self.story.train(STEPS)
        for name in who or tuple(self.bytes):
            rdma, ethernet = self.bytes[name]
            self.bytes[name] = None if rdma is None else rdma + over_rdma * MB, ethernet + over_ethernet * MB
        return self.look()


def judged(story: Story, over: str = "rdma", limits: FastPathLimits | None = None) -> Finding:
    plan = msgspec.structs.replace(story.plan, workload=msgspec.structs.replace(story.workload, gradients_over=over))
    monitor, history = FastPath(plan, limits or FastPathLimits()), History(plan.topology)
    for event in story.drain().end().journal():
        history.apply(event)
        if isinstance(event, monitor.watches):
            monitor.observe(event, history)
    return monitor.conclude(history)


def test_gradients_over_rdma_pass() -> None:
    found = judged(Counted().move(100, 1).move(100, 2).story)
    assert found.outcome is Outcome.PASS
    assert (found.measures["windows"], found.measures["rdma_mb"], found.measures["ethernet_mb"]) == (6, 600.0, 9.0)


def test_a_fallback_is_told_with_its_time_and_numbers() -> None:
    counted = Counted().move(100, 1)
    since_s = counted.story.now_s
    counted.move(0, 100, ("replica-1",)).move(0, 100, ("replica-1",))
    found = judged(counted.story)
    assert found.outcome is Outcome.FAIL
    assert (
        f"replica-1 moved 100.0 MB over TCP and 0.0 MB over RDMA in steps 5 to 8, from {since_s:.1f} s" in found.reading
    )
    assert "in 2 of 5 windows gradients of replica-1 went over TCP" in found.reading
    assert len(found.evidence) == 3, "the looks around both windows"


@pytest.mark.parametrize(
    ("tell", "reading"),
    [
        (lambda one: judged(one.move(100, 1).story, over=""), "does not say that its gradients are to go over RDMA"),
        (
            lambda one: judged(one.story.train(STEPS)),
            "no RDMA port of replica-0, replica-1 and replica-2 told of bytes",
        ),
        (lambda one: judged(one.move(0, 0).story), "told of bytes while it trained with others"),
    ],
    ids=["not declared", "one look", "nothing moved"],
)
def test_what_was_not_counted_is_unknown(tell: Callable[[Counted], Finding], reading: str) -> None:
    found = tell(Counted())
    assert found.outcome is Outcome.UNKNOWN and reading in found.reading


def test_a_replica_without_counters_is_unknown_however_much_it_moves() -> None:
    counted = Counted()
    counted.bytes["replica-2"] = None, 0
    counted.look()
    found = judged(counted.move(100, 1).move(100, 1).story)
    assert found.outcome is Outcome.UNKNOWN and "no RDMA port of replica-2 told" in found.reading


def test_a_state_that_heals_over_tcp_is_no_fallback_and_a_new_life_counts_from_zero() -> None:
    counted = Counted().move(100, 1)
    counted.story.kill("replica-1").wait(1.0).discard().regroup().train(STEPS)
    counted.story.restart("replica-1").build("replica-1")
    counted.bytes["replica-1"] = 0, 0
    counted.move(100, 1, ("replica-0", "replica-2"))
    counted.story.join("replica-1")
    counted.move(20, 900).move(100, 1)
    assert judged(counted.story).outcome is Outcome.PASS


def test_who_counts_may_begin_again() -> None:
    counted = Counted().move(100, 1).move(100, 1)
    counted.bytes = dict.fromkeys(counted.bytes, (0, 0))
    found = judged(counted.move(0, 0).move(100, 1).story)
    assert found.outcome is Outcome.PASS
    assert (found.measures["windows"], found.measures["rdma_mb"], found.measures["ethernet_mb"]) == (9, 900.0, 9.0)


def test_who_trains_alone_exchanges_nothing() -> None:
    counted = Counted().move(100, 1)
    counted.story.kill("replica-1", "replica-2").wait(1.0).regroup()
    assert judged(counted.move(0, 5, ("replica-0",)).story).outcome is Outcome.PASS


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8))
def test_it_fails_exactly_when_a_window_with_bytes_went_over_tcp(moved: list[tuple[int, int]]) -> None:
    counted = Counted().move(100, 1)
    for over_rdma, over_ethernet in moved:
        counted.move(over_rdma, over_ethernet)
    limits = FastPathLimits()
    slow = [
        rdma + ethernet >= limits.window_mb_min and ethernet / (rdma + ethernet) > limits.ethernet_share_max
        for rdma, ethernet in moved
        if rdma + ethernet
    ]
    assert (judged(counted.story).outcome is Outcome.FAIL) == any(slow)
