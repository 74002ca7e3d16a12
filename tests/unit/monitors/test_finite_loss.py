"""`finite_loss`: no update is made of what is not a number."""

from __future__ import annotations

import math

import pytest
from journals import Story, about, judge, judge_live, lost_and_back

from chaos.api import Outcome, events


def finding(story: Story):
    return judge(story)["finite_loss"]


def test_measures_of_a_good_run() -> None:
    found = finding(lost_and_back())
    assert found.reading == "loss and gradient norm were finite in each of 100 commits"
    assert found.measures == {"commits_checked": 100, "commits_bad": 0}


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
@pytest.mark.parametrize(("field", "said"), [("loss", "loss"), ("grad_norm", "gradient norm")])
def test_a_committed_number_that_is_none(field: str, said: str, value: float | None) -> None:
    """NaN goes into JSON as nothing."""
    story = lost_and_back().alter(about(events.Step, "replica-2", step=20), **{field: value})
    findings, broken = judge_live(story)
    found = findings["finite_loss"]
    assert found.outcome is Outcome.FAIL
    assert found.reading == f"replica-2 committed step 20 with a {said} that is not a finite number"
    assert found.measures["commits_bad"] == 1
    assert broken["finite_loss"] == found.evidence[0], "a live run must stop at once"


def test_a_step_that_was_discarded_does_no_harm() -> None:
    story = lost_and_back().alter(lambda event: isinstance(event, events.Step) and not event.committed, loss=None)
    assert finding(story).outcome is Outcome.PASS


def test_a_trainer_that_reports_no_numbers_is_a_blind_spot() -> None:
    story = lost_and_back().alter(lambda event: isinstance(event, events.Step), loss=None, grad_norm=None)
    assert (finding(story).outcome, finding(story).reading) == (
        Outcome.UNKNOWN,
        "no loss of a committed step was reported",
    )
