"""A run on a known bug succeeds when it shows the bug, by the monitor that is to see it, and only then."""

from __future__ import annotations

import msgspec
import pytest
from journals import Story, about, lost_and_back, steady

from chaos.api import Outcome, events
from chaos.check import Judges, digest
from chaos.model.experiment import Expect
from chaos.model.verdict import Verdict


def verdict(story: Story, expect: Expect | None) -> Verdict:
    monitors = dict.fromkeys(("replicas_rejoin", "same_state", "progress"))
    experiment = msgspec.structs.replace(story.plan.experiment, monitors=monitors, expect=expect)
    plan = msgspec.structs.replace(story.plan, experiment=experiment)
    judges = Judges(plan)
    for event in story.alter(about(events.RunStarted), plan=digest(plan)).journal():
        judges.observe(event)
    return judges.verdict()


def diverged() -> Story:
    return lost_and_back().alter(about(events.Step, "replica-0", committed=True), digest="another state")


def expect(outcome: Outcome, *by: str) -> Expect:
    return Expect(outcome, by, "project#1")


@pytest.mark.parametrize(
    ("story", "expected", "exit_code", "reading"),
    [
        (diverged, None, 1, None),
        (diverged, expect(Outcome.FAIL, "same_state"), 0, "fails as expected (same_state): project#1"),
        (
            diverged,
            expect(Outcome.FAIL, "progress"),
            1,
            "fails, but not as expected: FAIL by progress was expected (project#1)",
        ),
        (
            steady,
            expect(Outcome.FAIL, "same_state", "progress"),
            1,
            "passes, though FAIL by same_state or progress was expected: "
            "project#1 is repaired or did not show this time",
        ),
        (
            lambda: lost_and_back().drop(about(events.RunEnded)),
            expect(Outcome.FAIL, "same_state"),
            2,
            "stays unknown, but not as expected: FAIL by same_state was expected (project#1)",
        ),
    ],
)
def test_only_the_bug_itself_is_a_success(story, expected, exit_code, reading):
    said = verdict(story(), expected)
    assert said.exit_code == exit_code
    assert (said.expectation.reading if said.expectation else None) == reading


def test_a_bug_that_leaves_nothing_to_judge_is_expected_as_unknown():
    silent = steady().drop(about(events.Step))
    said = verdict(silent, expect(Outcome.UNKNOWN, "progress"))
    assert (said.outcome, said.exit_code) == (Outcome.UNKNOWN, 0)
    assert said.expectation is not None and said.expectation.reading.startswith("stays unknown as expected (progress)")
