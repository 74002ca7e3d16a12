"""Who is silent and who is hung, from beats at made-up times."""

from __future__ import annotations

from training.announce import BEAT_S, Beat
from training.watch import Watch

A, B = ("replica-0", 1), ("replica-1", 1)


def beat(name: str, waits: bool, for_s: float, quorum_id: int = 3, step_s: float = 0.3) -> Beat:
    return Beat(replica_id=f"{name}:u", quorum_id=quorum_id, waits=waits, for_s=for_s, step=4, step_s=step_s)


def looked(watch: Watch, until_s: float) -> list[str]:
    """Who becomes silent, with a look every beat from 0 on."""
    times = (count * BEAT_S for count in range(round(until_s / BEAT_S) + 1))
    return [replica_id for now_s in times for _, replica_id in watch.silent(now_s)]


def test_who_does_not_beat_is_silent_once() -> None:
    watch = Watch(1.0, 3.0)
    watch.heard(A, beat("replica-0", True, 0.1), 0.0)
    watch.heard(B, beat("replica-1", True, 0.1), 9.0)
    assert looked(watch, 5.0) == ["replica-0:u"]


def test_who_beats_again_may_become_silent_again() -> None:
    watch = Watch(1.0, 3.0)
    watch.heard(A, beat("replica-0", True, 0.1), 0.0)
    assert looked(watch, 2.0) == ["replica-0:u"]
    watch.heard(A, beat("replica-0", True, 0.1), 2.0)
    assert [list(watch.silent(now_s)) for now_s in (2.2, 2.4)] == [[], []]
    assert list(watch.silent(2.6)) == []
    assert [who for now_s in (2.8, 3.0, 3.2) for who in watch.silent(now_s)] == [(A, "replica-0:u")]


def test_a_controller_that_was_away_takes_nobody_for_silent() -> None:
    watch = Watch(1.0, 3.0)
    watch.heard(A, beat("replica-0", True, 0.1), 0.0)
    assert list(watch.silent(0.2)) == []
    assert list(watch.silent(30.0)) == [], "its own silence"


def test_who_was_heard_of_lately_lives_unless_it_waits_for_long_or_never_was_in_a_quorum() -> None:
    watch = Watch(1.0, 3.0)
    for key, told in {
        A: beat("replica-0", False, 9.0),
        B: beat("replica-1", True, 0.9),
        ("replica-2", 1): beat("replica-2", True, 1.1),
        ("replica-3", 1): beat("replica-3", False, 0.0, quorum_id=-1),
    }.items():
        watch.heard(key, told, 5.0)
    assert list(watch.alive(6.0)) == [(A, "replica-0:u"), (B, "replica-1:u")]
    watch.heard(B, beat("replica-1", False, 0.0), 6.1)
    assert list(watch.alive(6.2)) == [(B, "replica-1:u")]
    watch.ended(B)
    assert list(watch.alive(6.2)) == []


def test_who_works_while_a_peer_waits_is_hung_once() -> None:
    watch = Watch(1.0, 3.0)
    watch.heard(A, beat("replica-0", False, 3.1), 0.0)
    assert list(watch.hung()) == [], "nobody waits for it"
    watch.heard(B, beat("replica-1", True, 2.9), 0.0)
    assert list(watch.hung()) == []
    watch.heard(B, beat("replica-1", True, 3.1), 0.0)
    assert list(watch.hung()) == [(A, 3.1)]
    assert list(watch.hung()) == []


def test_a_peer_of_another_group_does_not_wait_for_it() -> None:
    watch = Watch(1.0, 3.0)
    watch.heard(A, beat("replica-0", False, 9.0), 0.0)
    watch.heard(B, beat("replica-1", True, 9.0, quorum_id=4), 0.0)
    assert list(watch.hung()) == []


def test_where_steps_are_slow_a_long_one_is_no_hang() -> None:
    watch = Watch(1.0, 3.0)
    watch.heard(A, beat("replica-0", False, 5.0, step_s=2.0), 0.0)
    watch.heard(B, beat("replica-1", True, 5.0, step_s=2.0), 0.0)
    assert list(watch.hung()) == []
    watch.heard(A, beat("replica-0", False, 8.1, step_s=2.0), 0.0)
    watch.heard(B, beat("replica-1", True, 8.1, step_s=2.0), 0.0)
    assert list(watch.hung()) == [(A, 8.1)]


def test_a_limit_of_0_is_none() -> None:
    watch = Watch(0.0, 0.0)
    watch.heard(A, beat("replica-0", False, 1e6), 0.0)
    watch.heard(B, beat("replica-1", True, 1e6), 0.0)
    assert looked(watch, 60.0) == []
    assert list(watch.hung()) == []


def test_the_dead_are_told_by_what_they_were_to_torchft() -> None:
    watch = Watch(1.0, 3.0)
    watch.heard(A, beat("replica-0", True, 0.1), 0.0)
    assert watch.ended(A) == "replica-0:u"
    assert watch.ended(A) is None
    assert looked(watch, 5.0) == []
