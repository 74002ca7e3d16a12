"""The digest of a training state: equal exactly when the bytes are."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from training import state
from training.digest import CHUNK_WORDS, digest, weighed

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64]
TENSORS = st.builds(
    lambda seed, shape, dtype: (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 99).to(dtype),
    st.integers(0, 2**30),
    st.sampled_from([(), (1,), (3, 4), (2, 3, 5)]),
    st.sampled_from(DTYPES),
)
STATES = st.dictionaries(st.text("abc.", min_size=1, max_size=6), TENSORS | st.floats(allow_nan=False), min_size=1)


@given(values=STATES, data=st.data())
def test_order_and_storage_do_not_matter(values: dict[str, torch.Tensor | float], data: st.DataObject) -> None:
    entries = data.draw(st.permutations(list(values.items())))
    elsewhere = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in entries}
    assert digest(elsewhere) == digest(values)


@given(values=STATES, data=st.data())
def test_one_flipped_bit_shows(values: dict[str, torch.Tensor | float], data: st.DataObject) -> None:
    tensors = sorted(name for name, value in values.items() if isinstance(value, torch.Tensor))
    if not tensors:
        return
    before = digest(values)
    tensor = values[data.draw(st.sampled_from(tensors))]
    assert isinstance(tensor, torch.Tensor)
    raw = tensor.reshape(-1).view(torch.uint8)
    raw[data.draw(st.integers(0, raw.numel() - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert digest(values) != before


def test_name_shape_and_type_count() -> None:
    zeros = torch.zeros(4)
    different = [
        ("a", zeros),
        ("b", zeros),
        ("a", zeros.view(2, 2)),
        ("a", zeros.to(torch.int32)),
        ("a", 0.0),
        ("a", 0),
    ]
    assert len({digest({name: value}) for name, value in different}) == len(different)


def test_a_view_counts_by_its_values() -> None:
    table = torch.arange(12.0).view(3, 4)
    assert digest({"a": table.t()}) == digest({"a": table.t().contiguous()})


@given(raw=st.binary(min_size=1, max_size=99), data=st.data())
def test_sums_as_taken_on_a_gpu_show_one_flipped_bit_and_two_swapped_words(raw: bytes, data: st.DataObject) -> None:
    def sums(of: bytes) -> list[int]:
        return [int(one) for one in weighed(torch.frombuffer(bytearray(of), dtype=torch.uint8))]

    flipped = bytearray(raw)
    flipped[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert sums(bytes(flipped)) != sums(raw)
    if len(raw) >= 8 and raw[:4] != raw[4:8]:
        assert sums(raw[4:8] + raw[:4] + raw[8:]) != sums(raw)


def test_sums_as_taken_on_a_gpu_cover_every_chunk() -> None:
    raw = torch.zeros(4 * CHUNK_WORDS + 1, dtype=torch.uint8)
    before = [int(one) for one in weighed(raw)]
    raw[-1] = 1
    after = [int(one) for one in weighed(raw)]
    assert before[0] == after[0]
    assert before[1] != after[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use")
def test_a_state_on_a_gpu_shows_what_it_shows_on_the_cpu() -> None:
    model, optimizer = trained()
    model.cuda()
    for moments in optimizer.state.values():
        moments.update({key: value.cuda() for key, value in moments.items()})
    same = of(model, optimizer)
    assert of(model, optimizer) == same
    with torch.no_grad():
        model.bias[0] = torch.nextafter(model.bias[0], torch.tensor(9.0, device="cuda"))
    assert of(model, optimizer) != same


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


def of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int = 1) -> str:
    return digest(state.entries([model], [optimizer]) | {"step": step})


def test_a_state_is_parameters_optimizer_rate_and_step() -> None:
    model, optimizer = trained()
    same = of(*trained())
    assert of(model, optimizer) == same
    assert of(model, optimizer, step=2) != same

    optimizer.param_groups[0]["lr"] = 0.2
    assert of(model, optimizer) != same
    optimizer.param_groups[0]["lr"] = 0.1

    moment = optimizer.state[model.weight]["exp_avg_sq"]
    kept = copy.deepcopy(moment)
    moment[0, 0] *= 1.0000002
    assert of(model, optimizer) != same
    moment.copy_(kept)

    with torch.no_grad():
        model.bias[0] += 1
    assert of(model, optimizer) != same


def test_a_replica_that_loaded_a_state_has_the_digest_of_who_gave_it() -> None:
    """Whatever order its own optimizer's state was made in."""
    model, optimizer = trained()
    other = torch.nn.Linear(4, 2)
    loaded = torch.optim.AdamW(other.parameters(), lr=0.1)
    for parameter in reversed(loaded.param_groups[0]["params"]):
        shape = torch.zeros_like(parameter)
        loaded.state[parameter] = {"exp_avg_sq": shape, "step": torch.tensor(0.0), "exp_avg": shape.clone()}
    assert of(other, loaded) != of(model, optimizer)
    other.load_state_dict(model.state_dict())
    given = copy.deepcopy(optimizer.state_dict())
    given["state"] = {key: dict(reversed(value.items())) for key, value in reversed(given["state"].items())}
    loaded.load_state_dict(given)
    assert of(other, loaded) == of(model, optimizer)


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_a_sharded_tensor_is_its_bytes() -> None:
    table = torch.arange(6.0).view(3, 2)
    sharded = distribute_tensor(table, init_device_mesh("cpu", (1,)), [Shard(0)])
    assert digest({"a": state.local(sharded)}) == digest({"a": table})


@pytest.mark.usefixtures("one_rank")
def test_sharded_parameters_and_their_optimizer_state_count() -> None:
    model, _ = trained()
    sharded = fully_shard(copy.deepcopy(model), mesh=init_device_mesh("cpu", (1,)))
    assert all(isinstance(parameter, DTensor) for parameter in sharded.parameters())
    optimizers = [torch.optim.AdamW(one.parameters(), lr=0.1) for one in (model, sharded)]
    for one, optimizer in zip((model, sharded), optimizers, strict=True):
        optimizer.zero_grad()
        one(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    same = of(sharded, optimizers[1])
    assert same == of(model, optimizers[0])
    moment = optimizers[1].state[sharded.weight]["exp_avg"]
    assert isinstance(moment, DTensor)
    moment.to_local()[0, 0] += 1e-3
    assert of(sharded, optimizers[1]) != same
