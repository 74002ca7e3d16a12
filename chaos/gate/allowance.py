"""How much worse than its baseline a job may be: what the spread of its own runs lets a comparison tell.

A `worse_by_max` that is too narrow leaves a job that has not changed undecided; one that is chosen after a regression
was seen finds that regression and no other. So it is to be had from the baseline alone: pairs of gates are drawn from
its runs, with replacement, and the narrowest allowance is the one with which nearly all of those pairs would pass.
Five runs give a first guess, twenty one that can be relied on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from chaos.gate import bounds
from chaos.gate.baseline import Baseline
from chaos.gate.suite import Suite

PASSING_PERCENT = 95
"""Of gates of a job that has not changed."""
_DRAWS = 1000


@dataclass(frozen=True)
class Allowance:
    """What the suite allows of a measure, and what the spread of the baseline's runs needs."""

    experiment: str
    measure: str
    asked: float
    needed: float

    def __str__(self) -> str:
        return (
            f"{self.measure} of {self.experiment}: by the spread of these runs, {PASSING_PERCENT} % of gates of a job "
            f"that has not changed pass with worse_by_max: {self.needed:.2f}; the suite has {self.asked:g}"
        )


def narrowest(before: Sequence[float], runs: int, risk: Fraction) -> float | None:
    """With so much a gate of so many runs passes nearly always; None for too few runs to pass at all."""
    chance = random.Random(0)
    ends = []
    for _ in range(_DRAWS):
        now, then = chance.choices(before, k=runs), chance.choices(before, k=len(before))
        bound = bounds.times_larger_at_most(now, then, risk)
        if bound is None:
            return None
        ends.append(bound)
    return bounds.percentile(ends, PASSING_PERCENT)


def allowances(suite: Suite, baseline: Baseline) -> Iterator[Allowance]:
    """Of each measure that is compared."""
    for entry in suite.entries:
        for objective in entry.objectives:
            if objective.measure is not None and objective.worse_by_max is not None:
                before = baseline.experiments[entry.name].measures[objective.measure]
                needed = narrowest(before, entry.runs, suite.risk)
                if needed is not None and isfinite(needed):
                    yield Allowance(entry.name, objective.measure, objective.worse_by_max, needed)
