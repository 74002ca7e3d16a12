"""`replicas_rejoin`: a return in a new life needs the signs of one."""

from __future__ import annotations

import pytest
from journals import about, judge, lost_and_back

from chaos.api import Finding, Outcome, events


def finding(story) -> Finding:
    return judge(story)["replicas_rejoin"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (events.TrainerStarted, "no trainer was seen to be built in its new life"),
        (events.MemberStarted, "its new life was not seen to begin"),
    ],
)
def test_a_life_whose_birth_was_not_seen(kind, said: str) -> None:
    found = finding(lost_and_back().drop(about(kind, "replica-1", incarnation=2)))
    assert (found.outcome, found.reading) == (Outcome.UNKNOWN, f"replica-1 came back, but {said}")


def test_a_new_life_under_the_number_of_the_old_one() -> None:
    story = lost_and_back()
    born = story.told.index(next(e for e in story.told if about(events.MemberStarted, "replica-1", incarnation=2)(e)))
    found = finding(story.alter(lambda e: e.member == "replica-1" and story.told.index(e) >= born, incarnation=1))
    assert found.outcome is Outcome.UNKNOWN
    assert found.reading == (
        "replica-1 came back, but its new life has the number 1, as if it were the one that was hit"
    )
