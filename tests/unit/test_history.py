"""The fold that runner and monitors share: who is where, and whom a fault would spare."""

from __future__ import annotations

from chaos.model.events import MemberStarted, Step
from chaos.model.history import History
from chaos.model.topology import Placement, Restart, Topology
from tests.unit.monitors.journals import steady

PLANNED = {"replica-0": "node-0", "replica-1": "node-1", "replica-2": "node-0"}


def test_a_lost_node_takes_those_who_live_on_it_now_not_those_who_were_planned_there() -> None:
    """A scheduler chooses, or a drain has moved them."""
    history = History(
        Topology(tuple(Placement(name, "replica", node) for name, node in PLANNED.items()), Restart.ALWAYS)
    )
    assert spared(history) == ["replica-0", "replica-2"]
    moved = MemberStarted(t_s=1, member="replica-0", incarnation=1, node="node-1", address="a", pid=2)
    history.apply(moved)
    assert spared(history) == ["replica-2"]
    assert [one.name for one in history.spared(("replica-2",))] == ["replica-0", "replica-1"]


def spared(history: History) -> list[str]:
    return [one.name for one in history.spared(("node-1",))]


def test_a_member_keeps_its_newest_loss_while_others_go_on() -> None:
    story = steady()
    history = History(story.topology)
    told: dict[str, float | None] = {}
    for event in story.journal():
        history.apply(event)
        if isinstance(event, Step):
            told[event.member] = event.loss
        assert {name: history.members[name].loss for name in told} == told
