"""What few runs can show: exact tests and bounds that assume nothing about how times are distributed.

Runs that were not made, or told nothing, are counted as good and as bad at once: whatever they would have shown, the
answer holds. So a gate may look after every run and stop early, and is wrong no more often than one that makes all its
runs and looks once.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from fractions import Fraction
from math import comb, inf

from chaos.model.verdict import Outcome

_HALVINGS = 24
"""Of an interval of shares, until its ends are close enough to be said."""


@functools.lru_cache(maxsize=1024)
def at_most(number: int, trials: int, share: Fraction) -> Fraction:
    """The probability of `number` hits or fewer in so many trials, each a hit with probability `share`."""
    return sum(
        (comb(trials, hits) * share**hits * (1 - share) ** (trials - hits) for hits in range(min(number, trials) + 1)),
        Fraction(0),
    )


@functools.lru_cache(maxsize=1024)
def tolerated(trials: int, share: float, risk: Fraction) -> int:
    """The most bad runs that still show that more than `share` are good; -1 when so few runs can never show it.

    Where no bad run is tolerated at all, `share` 1, all of them have to be good: that is a rule, not a proof.
    """
    if share >= 1:
        return 0
    bad = 1 - Fraction(str(share))
    number = -1
    while number + 1 < trials and at_most(number + 1, trials, bad) <= risk:
        number += 1
    return number


@functools.lru_cache(maxsize=1024)
def refuting(trials: int, share: float, risk: Fraction) -> int:
    """The fewest bad runs that show that less than `share` are good; more than `trials` when so few never can."""
    if share >= 1:
        return 1
    bad = 1 - Fraction(str(share))
    number = trials + 1
    while number > 0 and 1 - at_most(number - 2, trials, bad) <= risk:
        number -= 1
    return number


def share_judged(
    good: int, bad: int, trials: int, share: float, risk: Fraction, risk_fail: Fraction
) -> tuple[Outcome, bool]:
    """Whether at least `share` of all runs would be good, from those of `trials` that are known.

    And whether that is decided. PASS when it is not so is as rare as `risk`, FAIL when it is so as `risk_fail`.
    """
    passes, fails = tolerated(trials, share, risk), refuting(trials, share, risk_fail)
    if bad >= fails:
        return Outcome.FAIL, True
    if trials - good <= passes:
        return Outcome.PASS, True
    return Outcome.UNKNOWN, bad > passes and trials - good < fails


def share_at_least(good: int, trials: int, risk: Fraction) -> float:
    """The lower bound of Clopper and Pearson for the share of good runs: it is too high as rarely as `risk`."""
    if good == 0:
        return 0.0
    low, high = Fraction(0), Fraction(1)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if 1 - at_most(good - 1, trials, middle) <= risk:
            low = middle
        else:
            high = middle
    return float(low)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-len(ordered) * Fraction(str(percent)) // 100) - 1)]


def percentile_at_most(values: Sequence[float], percent: float, risk: Fraction) -> float | None:
    """An upper bound of the percentile that is one of the values, too low as rarely as `risk`; None for too few.

    A value of rank k lies below the percentile only if at least k of all do.
    """
    ordered, share = sorted(values), Fraction(str(percent)) / 100
    for rank, value in enumerate(ordered, start=1):
        if 1 - at_most(rank - 1, len(ordered), share) <= risk:
            return value
    return None


def larger_by_chance(values: Sequence[float], others: Sequence[float]) -> Fraction:
    """How probable it is that values rank so high among all by chance alone: the exact test of Wilcoxon, ties included.

    Values and others that come from one distribution give `p` or less with probability `p` at most.
    """
    pooled = sorted([*values, *others])
    twice_rank = {value: 2 * pooled.index(value) + pooled.count(value) + 1 for value in set(pooled)}
    told = sum(twice_rank[value] for value in values)
    ways = _ways(tuple(twice_rank[value] for value in pooled), len(values))
    return Fraction(sum(number for total, number in ways.items() if total >= told), sum(ways.values()))


def times_larger_at_most(values: Sequence[float], others: Sequence[float], risk: Fraction) -> float | None:
    """An upper bound of how many times larger values are than others, too low as rarely as `risk`; None for too few.

    The bound of Moses: one of the ratios of a value and another, as many of them below it as the test above asks for.
    """
    pairs = _pairs_that_tell(len(values), len(others), risk)
    ratios = sorted(value / other if other else inf for value in values for other in others)
    return ratios[pairs - 1] if pairs <= len(ratios) else None


@functools.lru_cache(maxsize=256)
def _pairs_that_tell(number: int, others: int, risk: Fraction) -> int:
    """In how many pairs of a value and another the value is the smaller by chance as rarely as `risk`, or in more."""
    ways = _ways(tuple(range(1, number + others + 1)), number)
    totals = sorted(ways, reverse=True)
    as_high = itertools.accumulate(ways[total] for total in totals)
    all_ways = comb(number + others, number)
    common = next(total for total, so_many in zip(totals, as_high, strict=True) if Fraction(so_many, all_ways) > risk)
    return common + 1 - number * (number + 1) // 2


@functools.lru_cache(maxsize=256)
def _ways(weights: tuple[int, ...], chosen: int) -> dict[int, int]:
    """In how many ways so many of the weights give each sum."""
    ways: list[dict[int, int]] = [{0: 1}, *({} for _ in range(chosen))]
    for weight in weights:
        for size in range(chosen, 0, -1):
            for total, number in ways[size - 1].items():
                ways[size][total + weight] = ways[size].get(total + weight, 0) + number
    return ways[chosen]


def order_judged(
    values: Sequence[float], missing: int, others: Sequence[float], risk: Fraction, risk_fail: Fraction
) -> tuple[Outcome, bool]:
    """Whether values are smaller than others (PASS) or larger (FAIL), whatever the missing ones would have been."""
    best, worst = [*values, *[-inf] * missing], [*values, *[inf] * missing]
    if larger_by_chance(best, others) <= risk_fail:
        return Outcome.FAIL, True
    if larger_by_chance([-value for value in worst], [-value for value in others]) <= risk:
        return Outcome.PASS, True
    return Outcome.UNKNOWN, missing == 0
