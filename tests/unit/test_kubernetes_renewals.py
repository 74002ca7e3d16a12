"""What a node's agent makes of renewals of a run's Lease: in time, made late, or come late."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from chaos.platforms.kubernetes.agent.renewals import Renewal, Renewals
from chaos.platforms.kubernetes.clocks import micro_time
from chaos.platforms.kubernetes.objects import LEASE_TTL_S

SLACK_S = 0.5


def after(passed_s: float, of_runner_s: float) -> Renewals:
    """A renewal was seen so long after the one before, and made so long after it."""
    renewals = Renewals()
    renewals["run"] = Renewal(time.monotonic() - passed_s, micro_time(-of_runner_s))
    renewals.seen("run", micro_time())
    return renewals


@given(passed_s=st.floats(0, LEASE_TTL_S - SLACK_S), of_runner_s=st.floats(-10, 10))
def test_a_renewal_that_is_seen_in_time_is_not_late_whatever_the_runner_s_clock_says(passed_s, of_runner_s):
    assert after(passed_s, of_runner_s)["run"].late == ""


def test_who_was_late_is_said_the_runner_or_the_way_from_it():
    assert "was seen renewed after 4.2 s, and made so after 4.1 s" in after(4.2, 4.1)["run"].late
    assert "was seen renewed after 4.2 s, and made so after 1.0 s" in after(4.2, 1.0)["run"].late


def test_a_lateness_is_remembered_when_more_renewals_follow_at_once():
    renewals = after(5.0, 1.0)
    renewals.seen("run", micro_time())
    assert "after 5.0 s" in renewals["run"].late


def test_a_run_lives_for_its_lease_s_time():
    renewals = Renewals()
    assert not renewals.alive("run"), "it was never heard of"
    renewals.seen("run", micro_time())
    assert renewals.alive("run")
    renewals["run"] = Renewal(time.monotonic() - LEASE_TTL_S, micro_time())
    assert not renewals.alive("run")
