"""The phases of a recovery, the same for every fault."""

from __future__ import annotations

import pytest
from journals import Story, about, frozen_and_back, lost, lost_and_back, node_off_and_back, slowed, steady

from chaos.api import Interface, LinkDown, Past, Survival, WayBack, events, survival, way_back
from chaos.model.history import History

PARTS = ("exit_s", "restart_s", "boot_s", "join_s", "heal_wait_s", "transfer_s", "first_commit_s")


def past_of(story: Story) -> Past:
    history = History(story.topology)
    for event in story.journal():
        history.apply(event)
    return history.past


def back(story: Story, index: int = 0) -> WayBack:
    past = past_of(story)
    hit = past.hits[index]
    life, commit = next(past.commits_after(hit))
    return way_back(hit, life, commit)


def left(story: Story, survivors: tuple[str, ...] = ("replica-0", "replica-2")) -> Survival:
    past = past_of(story)
    return survival(survivors, past.in_force[0], past.until_s, past)


def test_the_phases_of_a_victim_follow_on_each_other() -> None:
    way = back(lost_and_back())
    assert [mark.kind for mark in way.marks] == [
        *["member_started", "trainer_started", "quorum", "heal_started", "heal_ended"]
    ]
    phases = way.phases()
    assert sum(phases[part] or 0.0 for part in PARTS) == pytest.approx(phases["recovery_s"], abs=0.02)


@pytest.mark.parametrize("index", [0, 1])
def test_of_a_node_each_victim_has_its_own_phases_from_the_nodes_return_on(index: int) -> None:
    way = back(node_off_and_back(), index)
    phases = way.phases()
    assert way.reborn
    parts = [phases[part] or 0.0 for part in PARTS if part != "exit_s"]
    assert sum(parts) == pytest.approx(phases["recovery_s"], abs=0.02)


def test_who_comes_back_in_the_same_life_has_no_respawn() -> None:
    phases = back(frozen_and_back()).phases()
    assert [phases[part] for part in ("exit_s", "restart_s", "boot_s", "respawn_s")] == [None] * 4
    assert phases["join_s"] == pytest.approx(0.5)
    assert phases["join_s"] + phases["heal_wait_s"] + phases["transfer_s"] + phases["first_commit_s"] == pytest.approx(
        phases["recovery_s"]
    )


def test_a_replica_that_never_left_has_none_of_them() -> None:
    story = Story().deploy().train(12).strike("nic.down", LinkDown("replica-1", Interface.CONTROL)).train(5)
    phases = back(story.release().train(10).drain().end()).phases()
    assert {name for name, value in phases.items() if value is not None} == {"recovery_s", "first_commit_s"}


def test_the_signs_of_survivors() -> None:
    signs = left(lost_and_back())
    assert signs.failed_step_s == pytest.approx(1.0)
    assert signs.requorum_s == pytest.approx(1.0)
    assert signs.failed is not None and signs.failed.member == "replica-0"


def test_a_sign_before_the_proof_came_at_once() -> None:
    """A fault is proven 20 ms after its decision; the step failed 10 ms after it."""
    story = lost_and_back()
    in_force_s = past_of(story).in_force[0].t_s
    story.alter(about(events.Step, committed=False), t_s=in_force_s - 0.01)
    assert left(story).failed_step_s == 0.0
    story.alter(about(events.Step, committed=False), t_s=in_force_s - 0.03)
    assert left(story).failed_step_s is None, "that was before the fault"


@pytest.mark.parametrize("story", [slowed(), lost().drop(about(events.Step, committed=False))])
def test_what_did_not_happen_is_none(story: Story) -> None:
    assert left(story).failed_step_s is None


def test_a_quorum_of_the_same_id_is_no_new_one() -> None:
    story = slowed()
    story.now_s = story.now_s / 2
    story.quorum_id -= 1
    assert left(story.regroup()).requorum_s is None
    assert past_of(steady()).in_force == []
