"""Clocks of nodes that are wrong: measured by heartbeats, and taken out of the times of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.platforms.kubernetes.clocks import SAMPLES, WAY_S, Skews, age_s, micro_time

delays = st.lists(st.floats(0, 3), min_size=1, max_size=SAMPLES)


@given(ahead_s=st.floats(-1e6, 1e6), late_s=delays)
def test_a_clock_is_known_as_well_as_the_quickest_heartbeat_tells(ahead_s, late_s):
    skews = Skews()
    skews.heard("n", "2020-01-01T00:00:00.000000Z")  # From before, whenever that was.
    for late in late_s:
        skews.heard("n", micro_time(ahead_s - late))
    seen_s = ahead_s - min(late_s)
    assert skews.ahead_s("n") == pytest.approx(seen_s, abs=0.1) or (skews.ahead_s("n") == 0 and -1.1 < seen_s < 0.1)


@given(late_s=st.floats(0.1, WAY_S - 0.1))
def test_a_clock_that_is_right_is_not_put_wrong_by_a_slow_way(late_s):
    skews = Skews()
    for late in (2.0, late_s):
        skews.heard("n", micro_time(-late))
    assert skews.ahead_s("n") == 0


def test_a_heartbeat_that_did_not_change_tells_nothing():
    skews, long_ago = Skews(), micro_time(-30)
    for _ in range(3):
        skews.heard("n", long_ago)
    assert skews.ahead_s("n") == 0.0
    assert skews.ahead_s("another") == 0.0


def test_a_clock_that_was_set_right_is_right_once_old_heartbeats_are_forgotten():
    skews = Skews()
    for ahead_s in [5.0] * SAMPLES + [0.0] * SAMPLES:
        skews.heard("n", micro_time(ahead_s))
    assert skews.ahead_s("n") == pytest.approx(0, abs=0.1)


@given(st.floats(-1e6, 1e6))
def test_an_age_is_what_was_written(ahead_s):
    assert age_s(micro_time(-ahead_s)) == pytest.approx(ahead_s, abs=0.1)
