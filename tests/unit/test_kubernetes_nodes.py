"""What is done to a node is done to the members on it, each of which gets its part."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.model.injections import CpuLimit, Freeze, Interface, IoLimit, MemoryLimit, ProcessLimit, Shape
from chaos.model.ports import InjectionRefused
from chaos.platforms.kubernetes.background import background
from chaos.platforms.kubernetes.nodes import part

MEMBERS = st.integers(1, 64)


@given(cores=st.floats(1, 1024), rate=st.integers(8_000_000, 10**10), of=MEMBERS)
def test_what_is_shared_is_split_and_never_more_in_sum_than_the_node_was_to_have(cores, rate, of):
    parts = [part(CpuLimit("node-1", cores), f"replica-{n}", of) for n in range(of)]
    assert [one.target for one in parts] == [f"replica-{n}" for n in range(of)]
    assert sum(one.cores for one in parts if isinstance(one, CpuLimit)) <= cores * 1.000001
    shape = part(Shape("node-1", Interface.DATA, rate_bit_s=rate, delay_ms=5), "replica-0", of)
    assert isinstance(shape, Shape)
    assert shape.rate_bit_s is not None and rate - of < shape.rate_bit_s * of <= rate
    assert shape.delay_ms == 5, "a delay is not shared"
    slow, squeezed = part(IoLimit("node-1", rate), "a", of), part(MemoryLimit("node-1", limit_bytes=rate), "a", of)
    assert isinstance(slow, IoLimit) and isinstance(squeezed, MemoryLimit)
    assert (slow.bytes_s, squeezed.limit_bytes) == (rate // of, rate // of)
    assert part(ProcessLimit("node-1", 1000), "a", of) == ProcessLimit("a", 1000 // of)


@given(of=MEMBERS)
def test_what_cannot_be_split_is_done_to_each(of):
    assert part(Freeze("node-1"), "replica-0", of) == Freeze("replica-0")
    assert part(MemoryLimit("node-1", share_of_used=0.5), "a", of) == MemoryLimit("a", share_of_used=0.5)


def test_a_refusal_is_raised_as_it_is_and_ends_what_runs_beside_it():
    async def refused() -> None:
        async with background() as tasks:
            tasks.start_soon(anyio.sleep_forever)
            raise InjectionRefused("because")

    with pytest.raises(InjectionRefused, match="because"):
        anyio.run(refused)
