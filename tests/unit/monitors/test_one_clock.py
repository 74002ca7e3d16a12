"""`one_clock`: what is measured in seconds needs clocks that agree."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import Story, jittered, lost_and_back, node_off_and_back, numbered, steady

from chaos.api import Finding, Outcome, events
from chaos.model.history import History
from chaos.monitors.one_clock import OneClock, OneClockLimits

RUNS = (steady, lost_and_back, node_off_and_back)


def finding(story: Story, told: list[events.Event] | None = None) -> Finding:
    history, monitor = History(story.plan.topology), OneClock(story.plan, OneClockLimits())
    for event in told or story.journal():
        history.apply(event)
        monitor.observe(event, history)
    return monitor.conclude(history)


def jumped(told: list[events.Event], member: str, since_s: float, by_s: float) -> list[events.Event]:
    """The clock of a member jumps, the order of the journal stays."""
    hers = [event.member == member and event.t_s >= since_s for event in told]
    return [msgspec.structs.replace(e, t_s=e.t_s + by_s * late) for e, late in zip(told, hers, strict=True)]


@pytest.mark.parametrize("run", RUNS)
def test_clocks_that_agree(run) -> None:
    found = finding(run())
    assert (found.outcome, found.reading) == (Outcome.PASS, "no event contradicts the clock of another")
    assert found.measures == {"apart_s": 0.0, "contradictions": 0}


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), late_s_max=st.floats(0.0, 60.0), run=st.sampled_from(RUNS))
def test_late_news_are_no_wrong_clock(seed: int, late_s_max: float, run) -> None:
    story = run()
    assert finding(story, jittered(story.journal(), seed, late_s_max)).outcome is Outcome.PASS


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("by_s", [-100.0, -3.0, 5.0, 100.0])
def test_a_clock_that_jumps(run, by_s: float) -> None:
    story = run()
    found = finding(story, jumped(story.journal(), "replica-0", 9.0, by_s))
    assert found.outcome is Outcome.UNKNOWN
    said = "the clock of replica-0 is" if by_s > 0 else "the clock of replica-0 ran back"
    assert found.reading.startswith(said)
    assert 1.0 < float(found.measures["apart_s"] or 0.0) <= abs(by_s) + 1e-6


def test_a_jump_within_the_limit_is_none() -> None:
    story = lost_and_back()
    for by_s in (-0.9, 0.9):
        assert finding(story, jumped(story.journal(), "replica-0", 9.0, by_s)).outcome is Outcome.PASS


def test_a_life_that_speaks_before_it_began() -> None:
    story = lost_and_back()
    told = story.journal()
    begun = next(e for e in told if isinstance(e, events.MemberStarted) and e.incarnation == 2)
    found = finding(story, jumped(told, "replica-1", begun.t_s + 0.001, -20.0))
    assert (found.outcome, found.reading[:31]) == (Outcome.UNKNOWN, "the clock of replica-1 ran back")


def test_the_clock_of_the_runner_that_runs_back() -> None:
    story = lost_and_back()
    found = finding(story, jumped(story.journal(), "runner", 9.0, -4.0))
    assert found.outcome is Outcome.UNKNOWN


def test_broken_safety_bears_the_time_of_what_broke_it() -> None:
    story = steady()
    told = story.journal()
    late = events.SafetyBroken(t_s=told[-1].t_s - 30.0, member="runner", monitor="same_state", reading="differs")
    assert finding(story, numbered([*told[:-1], late, told[-1]])).reading == "same_state broke and ended the run early"


def test_an_exit_may_be_known_before_the_last_words() -> None:
    story = steady()
    told = story.journal()
    dead = events.MemberExited(t_s=14.0, member="replica-0", incarnation=1, status=-9)
    place = next(i for i, e in enumerate(told) if e.member == "replica-0" and e.t_s > 9.0)
    assert finding(story, numbered([*told[:place], dead, *told[place:]])).outcome is not Outcome.FAIL


def test_a_loss_is_told_by_those_who_read_and_late_words_follow_it() -> None:
    story = steady()
    told = story.journal()
    place = next(i for i, e in enumerate(told) if e.member == "replica-0" and e.t_s > 9.0)
    lost = events.EventsLost(t_s=told[place].t_s + 10.0, member="replica-0", incarnation=1, reason="the stream broke")
    at = next(i for i, e in enumerate(told) if e.member == "runner" and e.t_s > told[place].t_s)
    late = [
        msgspec.structs.replace(e, t_s=e.t_s + 20.0) if e.member == "runner" and i >= at else e
        for i, e in enumerate(told)
    ]
    assert finding(story, numbered([*late[:place], lost, *late[place:]])).outcome is Outcome.PASS
