"""`placement`: living replicas in one domain of the network."""

from __future__ import annotations

import msgspec
from journals import Story, lost_and_back

from chaos.api import Finding, History, Outcome, events
from chaos.monitors.placement import Placement, PlacementLimits

RACK = "example.com/rack"


def judged(story: Story, racks: dict[str, list[str]], domains_max: int = 1) -> Finding:
    """The story's replicas start in these racks, life by life."""
    monitor = Placement(story.plan, PlacementLimits(level=RACK, domains_max=domains_max))
    history = History(story.plan.topology)
    lives = {member: iter(found) for member, found in racks.items()}
    for event in story.journal():
        if isinstance(event, events.MemberStarted) and event.member in lives:
            event = msgspec.structs.replace(event, place={RACK: next(lives[event.member])})
        history.apply(event)
        if isinstance(event, monitor.watches):
            monitor.observe(event, history)
    return monitor.conclude(history)


def test_replicas_in_one_rack_pass_whatever_dies() -> None:
    found = judged(lost_and_back(), {"replica-0": ["a"], "replica-1": ["a", "a"], "replica-2": ["a"]})
    assert (found.outcome, found.measures) == (Outcome.PASS, {"domains": 1})


def test_one_that_comes_back_in_another_rack_is_told_with_the_time() -> None:
    racks = {"replica-0": ["a"], "replica-1": ["a", "b"], "replica-2": ["a"]}
    found = judged(lost_and_back(), racks)
    assert found.outcome is Outcome.FAIL
    assert f"replica-1 in b, replica-2 in a: 2 domains of {RACK} (at most 1)" in found.reading
    assert judged(lost_and_back(), racks, domains_max=2).outcome is Outcome.PASS


def test_nodes_that_tell_nothing_are_unknown() -> None:
    found = judged(lost_and_back(), {"replica-0": ["a"]})
    assert found.outcome is Outcome.UNKNOWN
    assert "replica-1 and replica-2" in found.reading
