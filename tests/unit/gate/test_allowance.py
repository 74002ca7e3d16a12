"""What the spread of a baseline's runs needs to be allowed."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suites import MACHINE, RECOVERY, STACK, suite

from chaos.gate.allowance import PASSING_PERCENT, allowances, narrowest
from chaos.gate.baseline import Baseline, Measured

RISK = Fraction(1, 10)
STEADY, SPREAD = (10.0, 10.1, 10.2, 9.9, 9.8), (10.0, 15.0, 10.2, 9.9, 7.0)


def test_runs_that_do_not_spread_need_no_allowance():
    assert narrowest([4.0] * 5, 5, RISK) == 1


def test_the_more_they_spread_the_more_they_need_and_more_runs_need_less():
    steady, spread, many = narrowest(STEADY, 5, RISK), narrowest(SPREAD, 5, RISK), narrowest(SPREAD * 4, 20, RISK)
    assert steady and spread and many
    assert 1 < steady < 1.05 < many < spread


@settings(max_examples=5)
@given(st.floats(0.001, 1000))
def test_the_unit_does_not_matter(unit):
    assert narrowest([value * unit for value in SPREAD], 5, RISK) == pytest.approx(narrowest(SPREAD, 5, RISK))


def test_too_few_runs_never_pass():
    assert narrowest([4.0, 5.0], 1, RISK) is None


def test_a_suite_is_told_what_its_baseline_needs(tmp_path):
    asked = suite(tmp_path, {"measure": RECOVERY, "percentile": 50, "at_most": 99, "worse_by_max": 1.1})
    version = asked.entries[0].version
    for measured, tight in ((STEADY, False), (SPREAD, True)):
        recorded = Baseline(
            "", "", STACK, MACHINE, {"replica-lost": Measured(version, "", (1.0,), {RECOVERY: measured})}
        )
        (told,) = allowances(asked, recorded)
        assert (told.needed > told.asked) is tight
        assert f"{PASSING_PERCENT} % of gates" in str(
            told
        ) and f"worse_by_max: {told.needed:.2f}; the suite has 1.1" in str(told)
    never = msgspec.structs.replace(recorded.experiments["replica-lost"], measures={RECOVERY: (0.0,) * 5})
    assert not list(allowances(asked, msgspec.structs.replace(recorded, experiments={"replica-lost": never})))
