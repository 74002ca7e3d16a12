"""Ordinary steps need no look: monitors say the same, and at the same event, when they are shown every single one."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import (
    MONITORS,
    Event,
    about,
    frozen_and_back,
    jittered,
    judge_live,
    lost_and_back,
    node_off_and_back,
    numbered,
    slowed,
    steady,
)

from chaos.api import events
from chaos.model.history import History
from chaos.model.plan import Plan
from chaos.monitors.bounded_memory import BoundedMemory
from chaos.monitors.one_clock import OneClock

ALL = (*MONITORS, BoundedMemory, OneClock)
RUNS = {run: run() for run in (steady, lost_and_back, frozen_and_back, node_off_and_back, slowed)}

CHANGES = (
    {"batch": 3},
    {"batch": None},
    {"committed": False},
    {"digest": "other"},
    {"digest": None},
    {"gradient_scale": 0.5},
    {"gradient_scale": None},
    {"grad_norm": math.inf},
    {"healing": True},
    {"loss": None},
    {"loss": math.nan},
    {"participants": 1},
    {"participants": 9},
    {"quorum_id": 1},
    {"quorum_id": 7},
    {"step": 5},
    {"step": 21},
    {"t_s": 0.0},
    {"t_s": 12.0},
    {"t_s": 30.0},
    {"tokens": 16},
)


def with_words_between(told: list[Event]) -> tuple[list[Event], list[int]]:
    """The same run in which a member says something after each step, and where each event stood without that."""
    more: list[tuple[Event, int]] = []
    told_s: dict[tuple[str, int], float] = {}
    for event in told:
        life = event.member, event.incarnation
        told_s[life] = max(event.t_s, told_s.get(life, 0.0))
        more.append((event, event.seq))
        if isinstance(event, events.Step):
            word = events.HealServed(t_s=told_s[life], member=event.member, incarnation=event.incarnation, step=0)
            more.append((word, event.seq))
    return numbered(event for event, _ in more), [seq for _, seq in more]


def ordinary(told: list[Event], plan: Plan) -> int:
    history, number = History(plan.topology), 0
    for event in told:
        history.apply(event)
        number += history.past.ordinary
    return number


def test_most_steps_of_a_run_are_ordinary_and_none_is_with_a_word_in_between() -> None:
    told, plan = RUNS[lost_and_back].journal(), RUNS[lost_and_back].plan
    steps = sum(isinstance(event, events.Step) for event in told)
    assert ordinary(told, plan) > 0.8 * steps
    assert ordinary(with_words_between(told)[0], plan) == 0


@pytest.mark.parametrize("change", [change for change in CHANGES if "t_s" not in change], ids=str)
def test_a_step_that_is_like_no_other_is_not_ordinary(change: dict[str, object]) -> None:
    told, plan = RUNS[lost_and_back].journal(), RUNS[lost_and_back].plan
    (step,) = filter(about(events.Step, "replica-2", step=16), told)
    history = History(plan.topology)
    for event in told[: step.seq]:
        history.apply(event)
    history.apply(msgspec.structs.replace(step, **change))
    assert not history.past.ordinary


@settings(max_examples=300)
@given(
    run=st.sampled_from(list(RUNS)),
    seed=st.integers(0, 9),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 12), st.sampled_from(CHANGES)), max_size=3),
)
def test_monitors_say_the_same_when_no_step_is_ordinary(run, seed: int, changes) -> None:
    plan, told = RUNS[run].plan, jittered(RUNS[run].journal(), seed, late_s_max=0.2)
    steps = [event.seq for event in told if isinstance(event, events.Step)]
    for begin, number, change in changes:
        for seq in steps[begin % len(steps) :: len(plan.replicas())][:number]:
            told[seq] = msgspec.structs.replace(told[seq], **change)
    chatty, seqs = with_words_between(told)
    findings, broken = judge_live(told, plan, ALL)
    others, others_broken = judge_live(chatty, plan, ALL)
    assert broken == {name: seqs[seq] for name, seq in others_broken.items()}
    for name, finding in findings.items():
        other = others[name]
        assert (finding.outcome, finding.reading) == (other.outcome, other.reading), name
        if name == "one_clock":  # The words in between repeat what contradicts.
            del finding.measures["contradictions"], other.measures["contradictions"]
        assert finding.measures == pytest.approx(other.measures), name
        assert list(finding.evidence) == list(dict.fromkeys(seqs[seq] for seq in other.evidence)), name
