"""The past and the newest state that monitors and triggers read."""

from __future__ import annotations

from journals import Story, about, lost_and_back

from chaos.api import Activity, events
from chaos.model.history import History


def history(story: Story) -> History:
    made = History(story.topology)
    for event in story.journal():
        made.apply(event)
    return made


def test_lives_of_a_replica_that_was_hit() -> None:
    first, second = history(lost_and_back()).past.lives["replica-1"]
    assert (first.incarnation, second.incarnation) == (1, 2)
    assert first.doomed is not None and first.exited is not None and len(first.commits) == 12
    assert second.doomed is None and second.exited is None and [c.step for c in second.commits] == list(range(30, 40))
    assert [heal.step for heal in second.heals] == [29]


def test_the_late_end_of_an_old_life_does_not_end_the_new_one() -> None:
    story = Story().deploy().train(5).wait(0.1).restart("replica-1").wait(1.0)
    story.say(events.MemberExited, "replica-1", status=-9, incarnation=1)
    assert history(story).members["replica-1"].activity is Activity.STARTING


def test_the_lives_after_a_hit_are_known_though_the_one_that_was_hit_is_not() -> None:
    story = lost_and_back().drop(lambda event: event.member == "replica-1" and event.incarnation == 1)
    past = history(story).past
    (hit,) = past.hits
    assert hit.struck is None
    assert [life.incarnation for life in past.lives_after(hit)] == [2]


def test_the_life_a_proof_names_is_hit_though_the_next_began_before_the_proof() -> None:
    """On a cluster the successor may start before the old container is proven gone."""
    story = Story().deploy().train(5).kill("replica-1")
    story.restart("replica-1").wait(1.9).alter(about(events.InjectionInForce), t_s=story.now_s)
    past = history(story).past
    (hit,) = past.hits
    first, second = past.lives["replica-1"]
    assert (first.doomed is not None, second.doomed) == (True, None)
    assert past.lives_after(hit) == [second]
