"""A plan leaves nothing to chance, and refuses before anything starts."""

from __future__ import annotations

import msgspec
import pytest

from chaos.load import load
from chaos.model.errors import BadInput
from chaos.model.injections import Delete
from chaos.model.plan import Plan
from chaos.model.topology import CONTROL_NODE
from chaos.plan import check_capabilities, plan

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
    assert planned.hit() == {"replica-2"}


def test_all_means_every_member_of_the_role():
    assert toy("faults.0.target={role: replica, pick: all}").hit() == {"replica-0", "replica-1", "replica-2"}


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
    with pytest.raises(BadInput, match=r"pod\.kill needs netem, which the local platform lacks here; `chaos doctor`"):
        check_capabilities(msgspec.structs.replace(planned, faults=(needing,)), "local", frozenset({"other"}))
