"""A plan leaves nothing to chance, and refuses before anything starts."""

from __future__ import annotations

import functools

import msgspec
import pytest

from chaos.load import load, shipped
from chaos.model.aim import MOMENT_ROLES
from chaos.model.errors import BadInput
from chaos.model.experiment import WorkloadSpec
from chaos.model.injections import Delete
from chaos.model.plan import Plan
from chaos.model.topology import CONTROL_NODE
from chaos.model.workload import Workload
from chaos.plan import check_capabilities, check_imports, describe, plan, plan_for

TOY = ["workload.program=toyjob", "workload.recipe=toy"]


def toy(*overrides: str) -> Plan:
    return plan(load("replica-lost", [*TOY, *overrides]))


def test_the_same_seed_gives_the_same_plan():
    assert toy("seed=3") == toy("seed=3")


def test_seeds_reach_every_victim():
    victims = {toy(f"seed={seed}").faults[0].targets for seed in range(12)}
    assert victims == {("replica-0",), ("replica-1",), ("replica-2",)}


def test_a_named_victim_is_hit():
    planned = toy("faults.0.target={role: replica, member: replica-2}")
    assert planned.faults[0].injections == (Delete("replica-2"),)
    assert planned.faults[0].targets == ("replica-2",)


@pytest.mark.parametrize(
    ("how", "hits"), [("", 1), ("pick: minority", 2), ("pick: majority", 3), ("count: 3", 3), ("percent: 50", 2)]
)
def test_a_target_says_how_many(how, hits):
    faults = f"faults.0.target={{role: replica, {how}}}"
    planned = toy("workload.replicas=5", "quorum_floor=1", "workload.min_replicas=1", faults)
    assert len(set(planned.faults[0].targets)) == hits


def test_a_fault_that_could_never_keep_the_quorum_floor_is_refused():
    everyone = "faults.0.target={role: replica, pick: all}"
    with pytest.raises(BadInput, match=r"pod\.kill would leave 0 of 3 replicas, fewer than the quorum floor 2"):
        toy(everyone)
    with pytest.raises(BadInput, match="leave 0 of 3 replicas, fewer than the quorum floor 1"):
        toy(everyone, "quorum_floor=1")
    assert len(toy(everyone, "quorum_floor=0").faults[0].targets) == 3


def test_repeats_come_at_their_period_or_by_chance_of_the_seed():
    periodic = toy("faults.0.repeat={count: 3, period_s: 7}")
    assert [(fault.id, fault.after_s) for fault in periodic.faults] == [
        ("fault-0.1", 0),
        ("fault-0.2", 7),
        ("fault-0.3", 14),
    ]
    poisson = toy("faults.0.repeat={count: 400, mtbf_s: 10}")
    assert poisson == toy("faults.0.repeat={count: 400, mtbf_s: 10}")
    waits_s = [fault.after_s for fault in poisson.faults]
    assert waits_s == sorted(waits_s)
    assert waits_s[-1] / 400 == pytest.approx(10, rel=0.2)


def test_a_mix_draws_by_weight():
    drawn = toy(
        "mixes=[{at: {step: 20}, repeat: {count: 400, period_s: 1}, faults: ["
        "{weight: 3, fault: pod.kill, target: {role: replica}},"
        "{weight: 1, fault: process.kill, target: {role: replica}}]}]",
        "faults=[]",
    )
    kills = sum(fault.fault == "pod.kill" for fault in drawn.faults)
    assert 260 <= kills <= 340
    assert {fault.fault for fault in drawn.faults} == {"pod.kill", "process.kill"}


def test_a_role_of_the_moment_is_aimed_at_while_running():
    planned = toy("faults.0.target={role: donor}", "faults.0.at={event: heal_started}").faults[0]
    assert (planned.role, planned.targets, planned.injections, planned.hits) == ("donor", (), (), 1)


def test_replicas_are_spread_and_the_control_plane_stands_apart():
    topology = toy().topology
    nodes = {placement.member: placement.node for placement in topology.placements}
    assert [nodes[f"replica-{i}"] for i in range(3)] == ["node-0", "node-1", "node-0"]
    assert nodes["controller"] == CONTROL_NODE


def test_a_plan_survives_its_file():
    planned = toy()
    assert msgspec.json.decode(msgspec.json.encode(planned), type=Plan) == planned


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("faults.0.target={role: relpica}", "role 'relpica' does not exist in this job; did you mean 'replica'"),
        ("faults.0.target={role: replica, member: replica-9}", "member 'replica-9' is not a replica; did you mean"),
        ("faults.0.target={role: replica, pick: all, count: 2}", "has pick and count; keep one of them"),
        ("faults.0.target={role: replica, count: 9}", "count is 9, there are 3 of role 'replica'; type 3"),
        ("faults.0.target={role: node}", "role 'node' cannot be hit by pod.kill"),
        ("faults.0.for_s=3", "pod.kill is done at once and cannot be undone; remove for_s"),
        ("workload.program=no_such_job", "'no_such_job' cannot be imported"),
        ("workload.settings={defect: none}", "defect 'none' is not known"),
    ],
)
def test_what_the_job_does_not_have_is_refused(override, message):
    with pytest.raises(BadInput) as caught:
        toy(override)
    assert message in str(caught.value)


def test_a_program_that_describes_nothing_is_refused():
    with pytest.raises(BadInput, match=r"printed no workload description|ended with"):
        toy("workload.program=this")


def test_a_missing_capability_names_fault_and_remedy():
    planned = toy()
    needing = msgspec.structs.replace(planned.faults[0], needs=("netem",))
    wanted = r"pod\.kill needs netem, which neither the local platform .*; as root: modprobe sch_netem; `chaos doctor`"
    with pytest.raises(BadInput, match=wanted):
        check_capabilities(msgspec.structs.replace(planned, faults=(needing,)), "local", frozenset({"other"}))


def test_a_rail_that_no_node_has_is_refused():
    rail = {
        "fault": "rdma.port_down",
        "target": {"role": "replica"},
        "at": {"step": 9},
        "args": {"rail": 9},
        "for_s": 5,
    }
    planned = toy(f"faults=[{msgspec.json.encode(rail).decode()}]")
    check_capabilities(planned, "kubernetes", frozenset({"rdma", "rail 9"}))
    with pytest.raises(BadInput, match=r"rdma\.port_down needs rail 9, which neither the kubernetes platform here nor"):
        check_capabilities(planned, "kubernetes", frozenset({"rdma", "rail 0", "rail 1"}))


def test_a_job_that_could_not_start_here_is_refused():
    planned = toy()
    check_imports(planned)
    needing = msgspec.structs.replace(planned.workload, imports=("json", "no_such_module"))
    with pytest.raises(BadInput, match=r"needs no_such_module, not installed here; type: pip install"):
        check_imports(msgspec.structs.replace(planned, workload=needing))


@functools.cache
def described(spec: bytes, seed: int) -> Workload:
    """The real job's description; most experiments have the same."""
    return describe(msgspec.json.decode(spec, type=WorkloadSpec), seed)


@pytest.mark.parametrize("name", shipped())
def test_shipped_experiments_plan_on_the_job_that_comes_with_torchchaos(name):
    experiment = load(name)
    planned = plan_for(experiment, described(msgspec.json.encode(experiment.workload), experiment.seed))
    assert msgspec.json.decode(msgspec.json.encode(planned), type=Plan) == planned
    for fault in planned.faults:
        assert fault.targets or fault.role in MOMENT_ROLES
        assert bool(fault.targets) == bool(fault.injections)


def test_who_is_hit_at_a_point_needs_a_trainer_with_points():
    assert toy("faults.0.at={point: in_allreduce}", "faults.0.target={role: at_point}").faults[0].needs == (
        "fault_points",
    )


@pytest.mark.parametrize(("role", "refused"), [("donor", False), ("at_point", True), ("replica", True)])
def test_a_fault_that_names_a_role_of_the_moment_hits_that_role_only(role, refused):
    overrides = ("faults.0.fault=heal.kill_donor", f"faults.0.target={{role: {role}}}")
    if refused:
        with pytest.raises(BadInput, match=f"role '{role}' cannot be hit by heal.kill_donor; .*donor"):
            toy(*overrides)
    else:
        assert toy(*overrides).faults[0].role == "donor"
