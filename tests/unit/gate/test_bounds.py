"""The statistics of gates: how often they err, by exact calculation and not by luck."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import comb, inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chaos.gate import bounds
from chaos.model.verdict import Outcome

SHARES = st.sampled_from([0.5, 0.75, 0.8, 0.9, 0.95])
exact = settings(max_examples=30)
"""Fractions take their time."""
RISKS = st.sampled_from([Fraction(1, 100), Fraction(1, 20), Fraction(1, 10)])


def probability(hits: int, trials: int, share: Fraction) -> Fraction:
    return comb(trials, hits) * share**hits * (1 - share) ** (trials - hits)


def outcomes_of_a_gate(trials: int, share: float, truth: Fraction, risk: Fraction) -> dict[Outcome, Fraction]:
    """How probable each outcome is of a gate that looks after every run and stops once it is decided.

    Every path of good and bad runs is walked, with the probability that it has when so many runs are good in truth.
    """
    ends = dict.fromkeys(Outcome, Fraction(0))
    ways = {(0, 0): Fraction(1)}
    while ways:
        later: dict[tuple[int, int], Fraction] = {}
        for (good, bad), likely in ways.items():
            outcome, decided = bounds.share_judged(good, bad, trials, share, risk, risk)
            if decided or good + bad == trials:
                ends[outcome] += likely
                continue
            later[good + 1, bad] = later.get((good + 1, bad), Fraction(0)) + likely * truth
            later[good, bad + 1] = later.get((good, bad + 1), Fraction(0)) + likely * (1 - truth)
        ways = later
    return ends


@exact
@given(st.integers(1, 25), SHARES, RISKS, st.fractions(0, 1, max_denominator=20))
def test_a_gate_that_may_stop_early_errs_no_more_often_than_its_risk(trials, share, risk, truth):
    ends = outcomes_of_a_gate(trials, share, truth, risk)
    assert sum(ends.values()) == 1
    if truth <= Fraction(str(share)):
        assert ends[Outcome.PASS] <= risk
    if truth >= Fraction(str(share)):
        assert ends[Outcome.FAIL] <= risk


@exact
@given(st.integers(1, 25), SHARES, RISKS, st.fractions(0, 1, max_denominator=20))
def test_stopping_early_changes_no_outcome(trials, share, risk, truth):
    """Who makes all the runs and looks once gets each outcome as often."""
    once = dict.fromkeys(Outcome, Fraction(0))
    for good in range(trials + 1):
        outcome, _ = bounds.share_judged(good, trials - good, trials, share, risk, risk)
        once[outcome] += probability(good, trials, truth)
    assert outcomes_of_a_gate(trials, share, truth, risk) == once


@exact
@given(st.integers(1, 40), SHARES, RISKS)
def test_more_runs_tolerate_more_and_never_pass_and_fail_at_once(trials, share, risk):
    assert bounds.tolerated(trials, share, risk) <= bounds.tolerated(trials + 1, share, risk)
    assert bounds.tolerated(trials, share, risk) < bounds.refuting(trials, share, risk)


@pytest.mark.parametrize(
    ("trials", "share", "passes"),
    [(4, 0.5, False), (5, 0.5, True), (28, 0.9, False), (29, 0.9, True), (59, 0.95, True)],
)
def test_so_many_good_runs_and_no_bad_one_are_needed(trials, share, passes):
    outcome, _ = bounds.share_judged(trials, 0, trials, share, Fraction(1, 20), Fraction(1, 20))
    assert outcome is (Outcome.PASS if passes else Outcome.UNKNOWN)


def test_where_all_runs_must_be_good_one_bad_decides():
    risk = Fraction(1, 20)
    assert bounds.share_judged(0, 1, 5, 1.0, risk, risk) == (Outcome.FAIL, True)
    assert bounds.share_judged(4, 0, 5, 1.0, risk, risk) == (Outcome.UNKNOWN, False)
    assert bounds.share_judged(5, 0, 5, 1.0, risk, risk) == (Outcome.PASS, True)


def test_what_can_neither_pass_nor_fail_any_more_is_decided():
    """Of five runs all must be good to pass and all bad to fail."""
    risk = Fraction(1, 10)
    assert bounds.share_judged(0, 1, 5, 0.5, risk, risk) == (Outcome.UNKNOWN, False)
    assert bounds.share_judged(1, 0, 5, 0.5, risk, risk) == (Outcome.UNKNOWN, False)
    assert bounds.share_judged(1, 1, 5, 0.5, risk, risk) == (Outcome.UNKNOWN, True)


def test_what_is_exactly_as_rare_as_the_risk_is_rare_enough():
    """One good run where a tenth is asked for, and one bad one where nine tenths are."""
    risk = Fraction(1, 10)
    assert bounds.share_judged(1, 0, 1, 0.1, risk, risk) == (Outcome.PASS, True)
    assert bounds.share_judged(0, 1, 1, 0.9, risk, risk) == (Outcome.FAIL, True)


@exact
@given(st.integers(1, 30), st.fractions(0, 1, max_denominator=30), RISKS)
def test_the_bound_of_a_share_is_above_the_truth_as_rarely_as_its_risk(trials, truth, risk):
    above = [good for good in range(trials + 1) if bounds.share_at_least(good, trials, risk) > truth]
    assert sum(probability(good, trials, truth) for good in above) <= risk


@exact
@given(st.integers(1, 25), st.sampled_from([10, 50, 75, 90, 99]), RISKS)
def test_the_bound_of_a_percentile_is_below_it_as_rarely_as_its_risk(trials, percent, risk):
    """Whatever the distribution: of values only the rank matters, and how many lie below the percentile."""
    bound = bounds.percentile_at_most(range(1, trials + 1), percent, risk)
    share = Fraction(percent, 100)
    if bound is not None:
        assert sum(probability(below, trials, share) for below in range(int(bound), trials + 1)) <= risk
    lower = int(bound or trials + 1) - 1
    assert sum(probability(below, trials, share) for below in range(lower, trials + 1)) > risk


@exact
@given(st.lists(st.integers(0, 9), min_size=1), st.integers(1, 99))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(values, percent):
    value = bounds.percentile(values, percent)
    assert sum(one <= value for one in values) * 100 >= percent * len(values)
    assert sum(one < value for one in values) * 100 < percent * len(values)


@exact
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.lists(st.integers(0, 4), min_size=1, max_size=4))
@example([0, 2], [1, 1, 1])
def test_chance_is_what_counting_every_arrangement_gives(values, others):
    """Ties included."""
    pooled = [*values, *others]

    def beaten(chosen: tuple[int, ...]) -> float:
        rest = [pooled[index] for index in range(len(pooled)) if index not in chosen]
        return sum((pooled[one] > other) + (pooled[one] == other) / 2 for one in chosen for other in rest)

    arrangements = list(itertools.combinations(range(len(pooled)), len(values)))
    seen = beaten(tuple(range(len(values))))
    assert bounds.larger_by_chance(values, others) == Fraction(
        sum(beaten(one) >= seen for one in arrangements), len(arrangements)
    )


@exact
@given(st.integers(1, 5), st.integers(1, 5), RISKS)
def test_values_of_one_distribution_are_told_apart_as_rarely_as_the_risk(number, others, risk):
    """Every order that they can come in is as likely."""
    told = 0
    arrangements = list(itertools.combinations(range(number + others), number))
    for chosen in arrangements:
        rest = [one for one in range(number + others) if one not in chosen]
        outcome, _ = bounds.order_judged(chosen, 0, rest, risk, risk)
        told += outcome is Outcome.FAIL
    assert Fraction(told, len(arrangements)) <= risk


@exact
@given(
    st.lists(st.integers(0, 9), max_size=5),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.lists(st.integers(0, 9), min_size=3, max_size=6),
    RISKS,
)
def test_what_is_decided_holds_whatever_the_missing_would_have_been(values, missing, others, risk):
    outcome, decided = bounds.order_judged(values, len(missing), others, risk, risk)
    if decided:
        assert bounds.order_judged([*values, *missing], 0, others, risk, risk) == (outcome, True)


def test_few_values_decide_nothing_while_others_may_come():
    """Three of five, all larger than the others, would be told apart if they were all."""
    risk = Fraction(1, 20)
    assert bounds.order_judged([9, 9, 9], 0, [1, 2, 3, 4, 5], risk, risk) == (Outcome.FAIL, True)
    assert bounds.order_judged([9, 9, 9], 2, [1, 2, 3, 4, 5], risk, risk) == (Outcome.UNKNOWN, False)
    assert bounds.order_judged([0, 0, 0], 2, [1, 2, 3, 4, 5], risk, risk) == (Outcome.UNKNOWN, False)


DISTINCT = st.lists(st.integers(1, 1000), min_size=4, max_size=9, unique=True)


@exact
@given(DISTINCT, st.integers(1, 8), RISKS)
@example([1, 2, 3, 4, 5, 6], 3, Fraction(1, 20))
def test_an_allowance_above_the_bound_passes_and_one_below_it_does_not(values, number, risk):
    now, before = values[:number], values[number:]
    bound = bounds.times_larger_at_most(now, before, risk)
    for times, outcome in ((1.0001, Outcome.PASS), (0.9999, Outcome.UNKNOWN)):
        limits = [value * (bound or 1) * times for value in before]
        passes = bounds.order_judged(now, 0, limits, risk, Fraction(0))[0]
        assert passes is (outcome if bound is not None else Outcome.UNKNOWN)


@exact
@given(st.integers(1, 5), st.integers(1, 5), RISKS)
def test_the_bound_of_a_ratio_is_below_the_truth_as_rarely_as_its_risk(number, others, risk):
    below = 0
    arrangements = list(itertools.combinations(range(1, number + others + 1), number))
    for chosen in arrangements:
        rest = [one for one in range(1, number + others + 1) if one not in chosen]
        bound = bounds.times_larger_at_most(chosen, rest, risk)
        below += bound is not None and bound < 1
    assert Fraction(below, len(arrangements)) <= risk


def test_never_is_later_than_anything():
    risk = Fraction(1, 10)
    assert bounds.order_judged([inf] * 4, 0, [1, 2, 3, 4], risk, risk) == (Outcome.FAIL, True)
    assert bounds.percentile([1, 2, inf], 50) == 2
    assert bounds.times_larger_at_most([1, 1, inf, inf, inf], [1, 1, 1, 1, 1], risk) == inf
    assert bounds.times_larger_at_most([1, 1, 1, 1, 1], [0, 0, 0, 0, 0], risk) == inf
