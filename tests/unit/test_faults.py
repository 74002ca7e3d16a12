"""The faults that come with torchchaos, as the planner sees them, and their catalogue."""

from __future__ import annotations

import signal
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from chaos.api import (
    Aim,
    Delete,
    Direction,
    Drop,
    Fault,
    Held,
    Interface,
    LinkDown,
    NoNames,
    PortShape,
    Process,
    Restart,
    Rhythm,
    Shape,
    Signal,
    Spread,
)
from chaos.load import KNOWN_BUGS, load, shipped
from chaos.model.aim import MOMENT_ROLES, candidates
from chaos.model.injections import LEASE_TTL_S, Injection, needs
from chaos.model.topology import CONTROL_NODE, Topology, place
from chaos.model.workload import Role, Workload
from chaos.platforms.kubernetes import objects
from chaos.platforms.local import holds
from chaos.registry import faults
from chaos.report import catalogue
from faults.network_blackhole import NetworkBlackhole
from faults.network_partition import NetworkPartition
from faults.nic_down import NicDown
from faults.nic_flap import NicFlap

REPLICAS = tuple(f"replica-{index}" for index in range(4))
MEMBERS = {"lighthouse": ("lighthouse",), "controller": ("controller",), "replica": REPLICAS}
ROLES = {role: Role(names, ("run",)) for role, names in MEMBERS.items()}
ROLES |= {"leftover": Role(("leftover-0",), ("run",), on_demand=True)}
WORKLOAD = Workload(1, "a-job", 4, 2, 100, ROLES)
TOPOLOGY: Topology = place(WORKLOAD, 2, Restart.ALWAYS)

KNOWN_NEEDS = {"links", "nft", "netem", "names", "disk", "freeze", "fault_points", "launch", "kubelet", "moves"}
KNOWN_NEEDS |= {"cgroup.cpu", "cgroup.memory", "cgroup.io", "cgroup.pids", "rdma"} | {f"rail {n}" for n in range(64)}
AIMED = [(kind, role) for kind in faults().values() for role in sorted(kind.roles)]


def members(role: str) -> tuple[str, ...]:
    return candidates("here", role, TOPOLOGY)


def injections(fault: Fault, *targets: str) -> tuple[Injection, ...]:
    return tuple(fault.injections(Aim(targets, TOPOLOGY)))


def hit(injection: Injection) -> str:
    return injection.target if isinstance(injection, Held) else injection.member


def values(info: Any) -> st.SearchStrategy[Any]:
    """What a search would draw for an argument of this type: from its range."""
    match info:
        case inspect.EnumType():
            return st.sampled_from([member.value for member in info.cls])
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(info.ge, info.le)
        case inspect.NoneType():
            return st.none()
        case inspect.UnionType():
            return st.one_of(*map(values, info.types))
        case inspect.FloatType():
            low, high = (info.ge, info.gt), (info.le, info.lt)
            return st.floats(
                next(bound for bound in low if bound is not None),
                next(bound for bound in high if bound is not None),
                exclude_min=info.gt is not None,
                exclude_max=info.lt is not None,
            )
    raise AssertionError(f"an argument of a type without a range: {info}")


def arguments(kind: type[Fault]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.encode_name: values(field.type) for field in inspect.type_info(kind).fields})


@settings(max_examples=600)
@given(data=st.data(), aimed=st.sampled_from(AIMED))
def test_any_fault_with_any_arguments_makes_injections_that_survive_their_file(data, aimed) -> None:
    kind, role = aimed
    fault = msgspec.convert(data.draw(arguments(kind)), kind)
    target = data.draw(st.sampled_from(members(role)))
    made = injections(fault, target)
    assert made
    assert msgspec.json.decode(msgspec.json.encode(made), type=tuple[Injection, ...]) == made
    for injection in made:
        assert hit(injection) in {target, *TOPOLOGY.on(target)}
        assert needs(injection) <= KNOWN_NEEDS


@pytest.mark.parametrize(("kind", "role"), AIMED, ids=lambda one: getattr(one, "name", one))
def test_defaults_hit_what_they_are_aimed_at_and_are_held_or_not_whatever_that_is(kind, role) -> None:
    both = members(role)[:2]
    made = [injection for target in both for injection in injections(kind(), target)]
    assert {hit(injection) for injection in made} in (
        {*both},
        {member for node in both for member in TOPOLOGY.on(node)},
    )
    assert len({isinstance(injection, Held) for injection in made}) == 1
    assert kind.roles <= {*ROLES, "node", *MOMENT_ROLES}


def test_each_fault_has_an_experiment_of_its_name_that_uses_it() -> None:
    """Where the job as it is cannot stand the fault, that is one on a known bug."""
    for name in faults():
        plain = name.translate(str.maketrans("._", "--"))
        experiment = plain if plain in shipped() else KNOWN_BUGS + plain
        assert experiment in shipped()
        assert name in [spec.fault for spec in load(experiment).faults]


def test_the_control_plane_is_never_on_a_node_that_is_hit() -> None:
    assert members("node") == ("node-0", "node-1")
    assert CONTROL_NODE in TOPOLOGY.nodes()


def test_kills_of_pods_and_of_processes() -> None:
    assert injections(faults()["pod.kill"](), "lighthouse") == (Delete("lighthouse"),)
    for name, number in (("kill", signal.SIGKILL), ("terminate", signal.SIGTERM), ("segfault", signal.SIGSEGV)):
        killed = injections(faults()[f"process.{name}"](), "replica-1")
        grace_s = 5.0 if name == "kill" else 30.0
        assert killed == (Signal("replica-1", Process.TRAINER, number, grace_s),)
    for name in ("lighthouse", "controller"):
        assert injections(faults()[f"{name}.kill"](), name) == (Signal(name, Process.MAIN, signal.SIGKILL),)


def test_names_fail_for_everyone_or_for_the_other_replicas() -> None:
    kind = faults()["dns.fail"]
    assert injections(kind(), "replica-1") == (NoNames("replica-1"),)
    of_replicas = msgspec.convert({"names": "replicas"}, kind)
    assert injections(of_replicas, "replica-1") == (NoNames("replica-1", ("replica-0", "replica-2", "replica-3")),)


def test_a_partition_is_between_the_targets_and_the_other_replicas() -> None:
    assert injections(NetworkPartition(), "replica-1", "replica-2") == (
        Drop("replica-1", ("replica-0", "replica-3")),
        Drop("replica-2", ("replica-0", "replica-3")),
    )
    assert injections(NetworkPartition(one_way=True), "node-1") == (
        Drop("replica-1", ("replica-0", "replica-2"), Direction.OUT),
        Drop("replica-3", ("replica-0", "replica-2"), Direction.OUT),
    )
    with pytest.raises(ValueError, match="nobody to be cut off from"):
        injections(NetworkPartition(), *REPLICAS)


def test_a_blackhole_takes_the_control_plane_from_a_replica_and_everyone_from_the_control_plane() -> None:
    assert injections(NetworkBlackhole(), "replica-0") == (Drop("replica-0", ("lighthouse", "controller")),)
    assert injections(NetworkBlackhole(), "lighthouse") == (Drop("lighthouse"),)


def test_a_flapping_nic_is_a_nic_that_is_down_now_and_then() -> None:
    flap = NicFlap(Interface.CONTROL, period_s=2.0, duty=0.25)
    assert injections(flap, "replica-0") == (LinkDown("replica-0", Interface.CONTROL),)
    assert flap.rhythm == Rhythm(2.0, 0.25)
    assert NicDown().rhythm is None


def test_what_shapes_refuse() -> None:
    shape = partial(Shape, "replica-0", Interface.DATA)
    for wrong, said in (
        (lambda: shape(), "needs rate_bit_s, delay_ms, loss_percent"),
        (lambda: shape(delay_ms=2900, jitter_ms=200), r"2900 \+- 200 is longer than the lease of 3 s"),
        (lambda: PortShape("replica-0", delay_ms=3001), "3001 is longer than the lease of 3 s"),
        (lambda: shape(delay_ms=1, jitter_ms=2), "must not exceed"),
        (lambda: shape(delay_ms=1, spread=Spread.NORMAL), "spread normal needs jitter_ms"),
        (lambda: shape(reorder_percent=1), "reorder_percent needs delay_ms"),
        (lambda: shape(delay_ms=1, loss_burst=3), "loss_burst needs a loss_percent below 100"),
        (lambda: shape(delay_ms=1, direction=Direction.BOTH), "has one direction"),
    ):
        with pytest.raises(ValueError, match=said):
            wrong()
    assert holds.TTL_S == objects.LEASE_TTL_S == LEASE_TTL_S


def entries() -> dict[str, catalogue.Entry]:
    here = {"namespaces": frozenset(KNOWN_NEEDS), "processes": frozenset[str]()}
    return {entry.name: entry for entry in catalogue.entries(faults().values(), here)}


def test_the_catalogue_says_of_every_fault_what_a_person_asks() -> None:
    for name, entry in entries().items():
        assert entry.summary.endswith(".") and entry.why.startswith("Why it happens: "), name
        assert entry.roles and not any(argument.required for argument in entry.arguments)
        assert entry.lacks["namespaces"] == ()
    slow = entries()["network.delay"]
    assert (slow.held, slow.removes, slow.needs) == (True, False, ("links", "netem"))
    assert slow.lacks["processes"] == ("links", "netem")
    assert slow.roles == ("node", "replica")
    assert slow.arguments == (
        catalogue.Argument("interface", "control or data", "data", False),
        catalogue.Argument("delay_ms", "number from 0.1 to 1,000", 20.0, False),
        catalogue.Argument("jitter", "number from 0 to 1", 0.0, False),
        catalogue.Argument("spread", "uniform or normal or pareto", "uniform", False),
        catalogue.Argument("direction", "in or out or both", "out", False),
    )
    assert not entries()["pod.kill"].held
    assert entries()["gradient.nan"].needs == ("fault_points",)
    assert entries()["gradient.nan"].lacks["processes"] == (), "the job has them or has them not"
    assert msgspec.json.encode(list(entries().values()))
