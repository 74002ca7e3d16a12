"""The past and the newest state that monitors and triggers read."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from journals import Story, about, frozen_and_back, jittered, lost_and_back, node_off_and_back

from chaos.api import Absences, Activity, events
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


def test_a_fault_of_a_node_hits_each_member_in_the_life_it_had() -> None:
    past = history(node_off_and_back()).past
    assert [(hit.member, hit.struck and hit.struck.incarnation) for hit in past.hits] == [
        ("replica-1", 1),
        ("replica-3", 1),
    ]
    assert past.aimed["fault-0"] == {"replica-1", "replica-3"}
    (proof,) = past.in_force
    assert all(hit.t_s == proof.t_s and hit.due_s > hit.t_s for hit in past.hits)


def test_a_frozen_life_is_not_over() -> None:
    (life,) = history(frozen_and_back()).past.lives["replica-1"]
    assert not life.doomed


def test_a_step_of_a_frozen_replica_that_its_peers_trained_anew_is_gone_with_its_heal() -> None:
    """It had finished step 13 when it stood still; its peers had not, and did it again without it."""
    story = Story().deploy().train(12).wait(0.1)
    story._step("replica-1", 13, True, 0.0, "its own")
    story.freeze("replica-1").wait(1.0).discard().regroup().train(10).release().join("replica-1").train(10)
    past = history(story).past
    assert {commit.member for commit in past.kept(13)} == {"replica-0", "replica-2"}
    story.drop(about(events.HealEnded))
    assert {commit.member for commit in history(story).past.kept(13)} == {"replica-0", "replica-1", "replica-2"}


@pytest.mark.parametrize(
    "changes", [{"quorum_id": 9}, {"participants": 2}, {"participants": 4}, {"digest": "other"}, {"digest": None}, {}]
)
def test_a_step_is_uneven_when_its_commits_do_not_all_tell_the_same(changes: dict[str, Any]) -> None:
    story = Story().deploy().train(5).alter(about(events.Step, "replica-1", step=3), **(changes or {"seq": 7}))
    assert history(story).past.steps.uneven == ({3} if changes else set())


def test_a_step_that_more_replicas_commit_than_take_part_is_uneven() -> None:
    story = Story().deploy().train(5).alter(about(events.Step, step=3), participants=2)
    assert history(story).past.steps.uneven == {3}


def test_what_was_looked_up_is_void_with_the_next_event() -> None:
    story = frozen_and_back()
    told, made = story.journal(), History(story.topology)
    back = next(event for event in told if event.t_s > 12 and about(events.Step, "replica-1")(event))
    for event in told[: told.index(back)]:
        made.apply(event)
    (hit,) = made.past.hits
    assert made.past.absences("replica-1").times_s == [(hit.t_s, inf)]
    made.apply(back)
    assert made.past.absences("replica-1").times_s == [(hit.t_s, back.t_s)]
    assert made.past.timeline("replica-1").split(back.t_s) == (made.past.member_commits("replica-1")[-1], None)


SECONDS = st.integers(0, 9)


@given(told=st.lists(st.tuples(SECONDS, st.integers(1, 9), st.booleans())), since=SECONDS, until=SECONDS)
def test_a_timeline_says_what_a_look_at_every_step_says(
    told: list[tuple[int, int, bool]], since: int, until: int
) -> None:
    story = Story(1)
    for t_s, step, committed in sorted(told):
        story.now_s = t_s
        story._step("replica-0", step, committed, 0.0, f"state {step}" if step % 2 else None)
    past = history(story).past
    timeline, commits = past.timeline("replica-0"), past.member_commits("replica-0")
    within = [commit for commit in commits if since <= commit.t_s <= until]
    before, after = timeline.split(until)
    assert list(timeline.digested_within(since, until)) == [commit for commit in within if commit.digest]
    assert before == next((commit for commit in reversed(commits) if commit.t_s <= until), None)
    assert after == next((commit for commit in commits if commit.t_s > until), None)
    assert timeline.top(since) == max((commit.step for commit in commits if commit.t_s < since), default=0)
    tried_in_vain = [t_s for t_s, _, committed in told if not committed and since <= t_s <= until]
    assert since > until or timeline.discards(since, until) == len(tried_in_vain)
    for life in past.lives["replica-0"]:
        assert list(life.commits_within(since, until)) == within


@pytest.mark.parametrize("run", [lost_and_back, frozen_and_back, node_off_and_back])
@pytest.mark.parametrize("seed", range(3))
def test_ordinary_commits_are_found_as_they_were_told(run: Callable[[], Story], seed: int) -> None:
    story = run()
    told, made = jittered(story.journal(), seed, late_s_max=0.2), History(story.topology)
    commits: dict[int, list[tuple[Any, ...]]] = {}
    for event in told:
        made.apply(event)
        if isinstance(event, events.Step) and event.committed:
            commits.setdefault(event.step, []).append(_said(event))
    past = made.past
    assert {step: [_said(one) for one in past.steps.commits(step)] for step in commits} == commits
    assert all(past.steps.tallies[step].commits == len(one) for step, one in commits.items())
    own = [_said(commit) for member in past.lives for commit in past.member_commits(member)]
    assert sorted(own) == sorted(one for same_step in commits.values() for one in same_step)
    times_s = sorted(one[1] for same_step in commits.values() for one in same_step)
    for at_s in (0.0, times_s[0], times_s[len(times_s) // 2], inf):
        before = [step for step, same_step in commits.items() if any(one[1] < at_s for one in same_step)]
        assert past.top(at_s) == max(before, default=0)


def _said(commit: Any) -> tuple[Any, ...]:
    told = (commit.seq, commit.t_s, commit.member, commit.step, commit.quorum_id, commit.participants, commit.healing)
    return (*told, commit.digest)


@given(
    times=st.lists(st.tuples(SECONDS, SECONDS), max_size=5).map(
        lambda pairs: [(gone, gone + long) for gone, long in pairs]
    ),
    since=SECONDS,
    lasts=SECONDS,
)
def test_absences_say_what_a_look_at_each_says(times: list[tuple[int, int]], since: int, lasts: int) -> None:
    absences = Absences(times)
    until = since + lasts
    assert absences.touch(since, until) == any(gone <= until and back > since for gone, back in times)
    assert absences.next_s(since) == min((gone for gone, _ in times if gone > since), default=inf)


@pytest.mark.parametrize("name", ["seq", "batch", "rss_bytes", "quorum_id"])
def test_a_number_of_any_size_is_taken_in(name: str) -> None:
    """As a damaged journal may hold it; one that cannot be judged would be worse."""
    story = lost_and_back()
    told, made = story.journal(), History(story.topology)
    for event in told:
        odd = about(events.Step, "replica-2", step=16)(event)
        made.apply(msgspec.structs.replace(event, **{name: 2**70}) if odd else event)
    assert len(made.past.steps.commits(16)) == 2
