"""`goodput`: what the faults cost, in the field's terms."""

from __future__ import annotations

import pytest
from journals import Story, about, judge, lost, lost_and_back, slowed, steady

from chaos.api import Outcome, events
from chaos.monitors.goodput import GoodputLimits


def test_a_run_without_faults_loses_nothing() -> None:
    found = judge(steady())["goodput"]
    assert found.reading == (
        "step efficiency 100.0%, ETTR 100.0%, 48 tokens/s; 0.0 replica-seconds lost without a fault"
    )
    assert found.measures["ettr"] == pytest.approx(1.0)
    assert found.measures["tokens_per_s"] == pytest.approx(48 * 14.5 / 14.6)
    assert found.measures["tokens_per_s_control"] is None
    assert found.measures["lost_replica_s"] == pytest.approx(0.0, abs=1e-6)


def test_measures_of_a_lost_replica() -> None:
    """Step 13 took 1.62 s instead of 0.5, and until step 30, in which replica-1 healed, one of three was missing."""
    found = judge(lost_and_back())["goodput"]
    measures = found.measures
    wall_s = 38 * 0.5 + 1.12 + 0.1
    assert measures["step_efficiency"] == pytest.approx(100 / 102)
    assert measures["ettr"] == pytest.approx(1 - 1.12 / wall_s)
    assert measures["failure_replica_s"] == pytest.approx(3 * 1.12 + 18 * 0.5)
    assert measures["failure_replica_s_per_fault"] == measures["failure_replica_s"]
    assert measures["steady_replica_s"] == pytest.approx(0.0, abs=1e-6)
    assert (measures["failure_discards"], measures["steady_discards"], measures["steady_quorums"]) == (2, 0, 0)
    assert measures["tokens_per_s_control"] == pytest.approx(48.0)
    assert measures["tokens_share"] == pytest.approx((38 * 3 - 18) * 8 / wall_s / 48)
    assert found.reading == (
        "step efficiency 98.0%, ETTR 94.5%, 38 tokens/s, 79.1% of those before the first fault; "
        "12.4 replica-seconds lost for each fault, 0.0 at other times"
    )


def test_a_stall_without_a_fault_is_a_cost_of_the_steady_state() -> None:
    story = Story().deploy().train(12).wait(3.0).train(12).drain().end()
    measures = judge(story)["goodput"].measures
    assert measures["steady_replica_s"] == pytest.approx(9.0)
    assert measures["failure_replica_s"] == 0.0


def test_discards_without_a_fault_are_a_cost_of_the_steady_state() -> None:
    story = lost_and_back()
    story.now_s = 7.0
    story.step = 3
    measures = judge(story.discard())["goodput"].measures
    assert (measures["failure_discards"], measures["steady_discards"]) == (2, 3)


def test_a_new_quorum_without_a_fault_is_a_cost_of_the_steady_state_once_the_job_is_up() -> None:
    story = Story().deploy().train(6).regroup().train(6).phase("disturb").train(6).regroup().train(6)
    assert judge(story.drain().end())["goodput"].measures["steady_quorums"] == 1


def test_a_replica_that_stays_away_costs_until_the_end() -> None:
    story = lost().train(20).drain().end()
    assert judge(story)["goodput"].measures["failure_replica_s"] == pytest.approx(3 * 1.12 + 25 * 0.5 + 0.1)


def test_slow_steps_are_productive_and_the_tokens_tell() -> None:
    """All steps of ten under the fault took 2 s: four times the usual time is waiting."""
    measures = judge(slowed())["goodput"].measures
    assert measures["step_efficiency"] == 1.0
    assert measures["failure_replica_s"] == pytest.approx(10 * 1.5 * 3 + 3 * 0.12, abs=0.5)


def test_steps_trained_again_count_once() -> None:
    """All that knew the state are gone and the job begins anew: its tokens are no new ones."""
    story = Story(2).deploy().train(12).kill("replica-0", "replica-1").wait(1.0)
    story.restart("replica-0").restart("replica-1").build("replica-0").build("replica-1")
    story.step, story.group = 0, {"replica-0", "replica-1"}
    measures = judge(story.regroup().train(8).drain().end())["goodput"].measures
    assert measures["tokens_per_s"] == pytest.approx(11 * 16 / (11 * 0.5 + 1.02 + 8 * 0.5 + 0.1))


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (GoodputLimits(step_efficiency_min=0.99), "step efficiency was 98.0% (at least 99.0%)"),
        (GoodputLimits(ettr_min=0.95), "ETTR was 94.5% (at least 95.0%)"),
        (
            GoodputLimits(tokens_share_min=0.8),
            "the share of tokens per second before the first fault was 79.1% (at least 80.0%)",
        ),
    ],
)
def test_what_is_below_its_limit(limits: GoodputLimits, said: str) -> None:
    found = judge(lost_and_back(), goodput=limits)["goodput"]
    assert (found.outcome, found.reading) == (Outcome.FAIL, said)


def test_limits_that_are_met() -> None:
    limits = GoodputLimits(step_efficiency_min=0.97, ettr_min=0.94, tokens_share_min=0.79)
    assert judge(lost_and_back(), goodput=limits)["goodput"].outcome is Outcome.PASS


def test_a_share_of_nothing_is_unknown() -> None:
    found = judge(steady(), goodput=GoodputLimits(tokens_share_min=0.5))["goodput"]
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == "no tokens per second before a fault to compare with"


def test_one_step_or_lost_events_tell_nothing() -> None:
    assert judge(Story().deploy().train(1).drain().end())["goodput"].outcome is Outcome.UNKNOWN
    story = steady()
    story.now_s = 8.0
    assert judge(story.say(events.EventsLost, "replica-2", reason="x"))["goodput"].outcome is Outcome.UNKNOWN


def test_healing_replicas_train_no_tokens() -> None:
    story = steady().alter(about(events.Step, "replica-1"), healing=True)
    assert judge(story)["goodput"].measures["tokens_per_s"] == pytest.approx(32 * 14.5 / 14.6)
