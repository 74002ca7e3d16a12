"""What a queue is asked to do, as bytes for the kernel and back."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.agent.linux import netem
from chaos.agent.linux.netem import Wish, netem_options, read, tbf_options, together
from chaos.model.injections import Interface, PortShape, Shape, Spread

shares = st.one_of(st.none(), st.floats(0.01, 99))


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    delay_ms = draw(st.one_of(st.none(), st.floats(0.1, 1000)))
    jitter_ms = draw(st.one_of(st.none(), st.floats(0.01, delay_ms))) if delay_ms else None
    loss = draw(shares)
    return Shape(
        "replica-0",
        Interface.DATA,
        rate_bit_s=draw(st.integers(8000, 10**9)),
        delay_ms=delay_ms,
        jitter_ms=jitter_ms,
        spread=draw(st.sampled_from(Spread)) if jitter_ms else Spread.UNIFORM,
        loss_percent=loss,
        loss_burst=draw(st.one_of(st.none(), st.floats(1, 1000))) if loss else None,
        duplicate_percent=draw(shares),
        corrupt_percent=draw(shares),
        reorder_percent=draw(shares) if delay_ms else None,
    )


@given(st.lists(shapes(), min_size=1, max_size=4))
def test_what_is_written_is_what_is_read(several: list[Shape]) -> None:
    wish = together(several)
    found = read("tbf", tbf_options(wish.rate), read("netem", netem_options(wish), Wish()))
    assert found == wish.told()


@given(shapes(), shapes())
def test_of_two_the_worse_counts_in_either_order(one: Shape, other: Shape) -> None:
    both = together([one, other])
    assert replace(both, spread=Spread.UNIFORM) == replace(together([other, one]), spread=Spread.UNIFORM)
    for alone in (together([one]), together([other])):
        assert both.rate <= alone.rate and both.delay_ns >= alone.delay_ns and both.corrupt >= alone.corrupt
        assert both.loss >= alone.loss or both.bad


def test_nothing_is_asked_for_without_leases() -> None:
    assert together([]) == Wish() and str(Wish()) == "nothing"


def test_what_it_does_is_told_in_numbers() -> None:
    shape = Shape("replica-0", Interface.DATA, 8_000_000, 20, 5, loss_percent=2, loss_burst=10, corrupt_percent=1)
    said = "a rate of 8000000 bit/s and a delay of 20 +- 5 ms and a loss of 2 % in bursts of 10 and 1 % damaged"
    assert str(together([shape])) == said
    assert str(together([PortShape("replica-0", loss_percent=3)])) == "a loss of 3 %"


@pytest.mark.parametrize("spread", [Spread.NORMAL, Spread.PARETO])
def test_a_spread_has_the_jitter_that_was_asked_for(spread: Spread) -> None:
    table = netem._table(spread)
    values = [value / 8192 for (value,) in struct.iter_unpack("=h", table)]
    assert sum(values) / len(values) == pytest.approx(0, abs=0.06)
    assert (sum(value**2 for value in values) / len(values)) ** 0.5 == pytest.approx(1, rel=0.2)
