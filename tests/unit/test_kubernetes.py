"""Of the Kubernetes platform what needs no cluster: names, places, lives, the first program of a pod."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from itertools import product
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from chaos.load import load
from chaos.model.errors import BadInput
from chaos.model.events import MemberAttached, Step
from chaos.model.topology import Restart, Topology
from chaos.model.topology import place as place_members
from chaos.plan import plan
from chaos.platforms.kubernetes import entry, install
from chaos.platforms.kubernetes.layout import Keepers, Kind, Layout
from chaos.platforms.kubernetes.lives import Entered, Lives
from chaos.platforms.kubernetes.options import Options, Overlay, Program, laid_over, read
from chaos.platforms.kubernetes.placing import place, suited
from chaos.platforms.kubernetes.platform import Found, KubernetesPlatform
from chaos.platforms.kubernetes.preflight import RIGHTS

ABC = frozenset({"a", "b", "c"})
OPTIONS = Options(job=Program("job:1"), agent=Program("agent:1", python="/opt/python"))


def topology(nodes: int) -> Topology:
    toy = ["workload.program=toyjob", "workload.recipe=toy", f"topology.nodes={nodes}"]
    return place_members(plan(load("steady", toy)).workload, nodes, Restart.ALWAYS)


def entered(member: str, incarnation: int, wall_s: float) -> Entered:
    return Entered(5.0, wall_s, member, incarnation, 7, "10.0.0.1", {"lo": "127.0.0.1", "eth0": "10.0.0.1"})


def test_nodes_of_the_plan_get_nodes_of_the_cluster_and_the_control_plane_its_own():
    assert place(topology(2), ["a", "b", "c"], ABC) == {"node-0": "a", "node-1": "b", "node-control": "c"}


def test_replicas_go_where_their_devices_are_and_the_control_plane_where_they_are_not():
    gpus = msgspec.structs.replace(
        OPTIONS,
        replica=Overlay(
            pod={"nodeSelector": {"pool": "gpus"}},
            container={"resources": {"limits": {"nvidia.com/gpu": 8, "cpu": "2"}}},
        ),
    )
    few, labelled = node("a", gpus=4), node("b", gpus=8)
    bare = {**node("d", gpus=8), "metadata": {"name": "d", "labels": {}}}
    assert suited([few, labelled, node("c", gpus=8), bare], gpus) == {"b", "c"}
    assert suited([few, bare], OPTIONS) == {"a", "d"}
    found = place(topology(2), ["a", "b", "c"], frozenset({"b", "c"}))
    assert found == {"node-0": "b", "node-1": "c", "node-control": "a"}
    with pytest.raises(BadInput, match=r"2 nodes for replicas; 1 of the cluster's have the resources"):
        place(topology(2), ["a", "b", "c"], frozenset({"b"}))


def node(name: str, gpus: int) -> dict[str, object]:
    allocatable = {"cpu": "8", "nvidia.com/gpu": str(gpus)}
    return {"metadata": {"name": name, "labels": {"pool": "gpus"}}, "status": {"allocatable": allocatable}}


def test_too_few_nodes_are_refused_with_what_fits():
    with pytest.raises(BadInput, match=r"has 3 nodes.*the cluster has 2 with an agent; type --set topology.nodes=1"):
        place(topology(2), ["a", "b"], ABC)


def test_names_that_no_pod_could_bear_are_refused():
    for layout in Layout:
        keepers(layout).check("torchchaos")
        with pytest.raises(BadInput, match="a host name has 64 at most; type a namespace with"):
            keepers(layout).check("a-namespace-with-a-very-long-name")


@pytest.mark.parametrize(
    ("layout", "pods", "objects"),
    [
        (Layout.MESH, ["tc1r-0", "tc1r-1", "tc1r-2"], 1),
        (Layout.MESH_PER_REPLICA, ["tc1r0-0", "tc1r1-0", "tc1r2-0"], 3),
        (Layout.STATEFULSET, ["tc1-replica-0", "tc1-replica-1", "tc1-replica-2"], 1),
        (Layout.STATEFULSET_PER_REPLICA, ["tc1-replica-0-0", "tc1-replica-1-0", "tc1-replica-2-0"], 3),
    ],
)
def test_a_layout_says_who_keeps_which_replica_and_what_its_pod_is_called(layout, pods, objects):
    found = keepers(layout)
    assert [found.pod(f"replica-{n}") for n in range(3)] == pods
    assert [found.member(pod) for pod in pods] == ["replica-0", "replica-1", "replica-2"]
    assert sum(one.role == "replica" for one in found) == objects
    assert found.of("lighthouse").kind is Kind.SET
    assert found.of("leftover-0").kind is Kind.POD
    assert found.member("somebody-else-0") is None


@pytest.mark.parametrize("layout", list(Layout))
def test_what_nothing_is_to_start_again_is_a_bare_pod_in_every_layout(layout):
    assert {one.kind for one in keepers(layout, Restart.NEVER)} == {Kind.POD}


def keepers(layout: Layout, restart: Restart = Restart.ALWAYS) -> Keepers:
    toy = ["workload.program=toyjob", "workload.recipe=toy"]
    workload = plan(load("steady", toy)).workload
    return Keepers("tc1", workload, place_members(workload, 1, restart), layout)


def test_lives_count_from_one_in_the_order_in_which_they_are_heard_of():
    lives = Lives({"replica-0": "replica"}, epoch_wall_s=1000.0)
    first, started = lives.begin(entered("replica-0", 1700, 1010.0), "p", "u", "n", "node-0", since_s=9.0, now_s=11.0)
    assert (first.incarnation, started.incarnation, started.t_s) == (1, 1, 10.0)
    attached = MemberAttached(t_s=1.0, member="controller", incarnation=4, **told("replica-0", 1800))
    assert lives.numbered(attached).member_incarnation == 2  # Heard of it before its own first line.
    second, _ = lives.begin(entered("replica-0", 1800, 1012.0), "p", "u", "n", "node-0", since_s=9.0, now_s=13.0)
    assert second.incarnation == 2
    assert lives.addresses() == {"replica-0": ("10.0.0.1",)}


def told(name: str, member_incarnation: int) -> dict[str, object]:
    return {"name": name, "member_incarnation": member_incarnation, "address": "", "attach_s": 0.1}


@given(ahead_s=st.floats(-1e6, 1e6), before_s=st.floats(0, 10), after_s=st.floats(0, 10))
def test_however_wrong_a_node_s_clock_is_a_life_begins_between_its_pod_and_the_news_of_it(ahead_s, before_s, after_s):
    lives = Lives({"replica-0": "replica"}, epoch_wall_s=1000.0)
    news = entered("replica-0", 1, 1050.0 + ahead_s)
    life, started = lives.begin(news, "p", "u", "n", "node-0", since_s=50.0 - before_s, now_s=50.0 + after_s)
    assert 50.0 - before_s <= started.t_s <= 50.0 + after_s
    line = {"kind": "step", "mono_s": 8.0, "seq": 0, "member": "replica-0", "incarnation": 1, "step": 1}
    facts = {"committed": True, "quorum_id": 1, "participants": 1, "healing": False, "tokens": 1, "lr": 0.1}
    (step,) = life.lines.line(json.dumps({**line, **facts, "duration_s": 0.1}).encode())
    assert isinstance(step, Step)
    assert step.t_s - started.t_s == pytest.approx(3.0), "time within a life is its node's own"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=2), json_values))
def test_nothing_laid_over_changes_nothing(base):
    assert laid_over(base, {}) == base == laid_over({}, base)


def test_lists_are_lengthened_and_maps_merged():
    base = {"env": [1], "resources": {"limits": {"cpu": 1}}, "image": "a"}
    more = {"env": [2], "resources": {"limits": {"memory": 2}}, "image": "b"}
    assert laid_over(base, more) == {"env": [1, 2], "resources": {"limits": {"cpu": 1, "memory": 2}}, "image": "b"}


def test_the_platform_file_says_what_is_wrong_with_it(tmp_path):
    file = tmp_path / "platform.yaml"
    file.write_text("{job: {image: a}, agent: {image: b}, interfaces: {data: net1}}")
    assert read(file).nics() == {"control": "eth0", "data": "net1"}
    file.write_text("{job: {imag: a}, agent: {image: b}}")
    with pytest.raises(BadInput, match="did you mean 'image'"):
        read(file)
    with pytest.raises(BadInput, match="No such file"):
        read(tmp_path / "absent.yaml")


def test_manifests_carry_the_agent_s_program_and_the_job_s_namespace_opts_in():
    found = install.manifests(OPTIONS)
    (daemon,) = (item for item in found if item["kind"] == "DaemonSet")
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["command"][0]) == ("agent:1", "/opt/python")
    assert found[-1]["metadata"] == {"name": "torchchaos", "labels": {"torchchaos.dev/chaos": "enabled"}}


def test_the_runner_s_role_holds_what_a_runner_checks_that_it_may():
    rules = [
        rule for item in install.manifests(OPTIONS) if named(item) == "torchchaos-runner" for rule in item["rules"]
    ]
    granted = {one for rule in rules for one in product(rule["apiGroups"], rule["resources"], rule["verbs"])}
    checked = {(group, resource, verb) for group, resource, verbs in RIGHTS for verb in verbs.split()}
    assert granted == checked


def named(item: dict[str, object]) -> str:
    meta = item["metadata"]
    assert isinstance(meta, dict)
    return str(meta["name"])


def test_the_first_program_of_a_pod_fills_in_its_place_says_so_and_becomes_the_member(tmp_path):
    member = ["{python}", "-c", "import sys; print(sys.argv[1:], open(sys.argv[3], 'a').write('told'))"]
    member += ["{member}", "{host:controller}", "{events}", "{address}", "{scratch}", "{data_interface}", "{host}"]
    job = {"python": sys.executable, "data_interface": "net1", "hosts": {"controller": "c.x"}}
    (tmp_path / "job.json").write_text(
        json.dumps({**job, "commands": {"replica-0": member}, "members": {"a-pod-0": "replica-0"}})
    )
    program = tmp_path / "entry.py"
    scratch = tmp_path / "scratch"
    program.write_text(Path(entry.__file__).read_text().replace('SCRATCH = "/scratch"', f'SCRATCH = "{scratch}"'))
    done = subprocess.run(
        [sys.executable, "-I", "-S", program],
        env={"TORCHCHAOS_POD": "a-pod-0", "TORCHCHAOS_ADDRESS": "10.1.2.3"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    first, rest = done.stdout.split("\n", 1)
    said = yaml.safe_load(first)
    assert (said["kind"], said["member"], said["address"]) == ("member_entered", "replica-0", "10.1.2.3")
    assert said["addresses"]["lo"] == "127.0.0.1"
    assert f"'replica-0', 'c.x', '/proc/{said['pid']}/fd/1', '10.1.2.3', '{scratch}', 'net1'" in rest
    assert socket.gethostname() in rest
    assert "told" in rest, "the events of any process of the pod land in the container's output"


def test_a_profile_is_what_the_platform_file_is_laid_over(tmp_path):
    file = tmp_path / "platform.yaml"
    file.write_text("{profile: oke, job: {image: a}, agent: {image: b}, replica: {pod: {tolerations: [{key: x}]}}}")
    found = read(file)
    assert found.replica.container["resources"]["limits"] == {"nvidia.com/gpu": 8, "nvidia.com/sriov-rdma-vf": 16}
    assert found.replica.annotations["k8s.v1.cni.cncf.io/networks"].split(",") == ["sriov-rdma-vf"] * 16
    assert [one["key"] for one in found.replica.pod["tolerations"]] == ["nvidia.com/gpu", "x"]
    assert found.levels[0] == "oci.oraclecloud.com/rdma.hpc_island_id"
    file.write_text("{profile: oka, job: {image: a}, agent: {image: b}}")
    with pytest.raises(BadInput, match="unknown profile 'oka'; did you mean 'oke'"):
        read(file)
    file.write_text("{job: {image: a}, agent: {image: b}, queue: {name: q, required: a, preferred: b}}")
    with pytest.raises(BadInput, match="required or preferred, not both"):
        read(file)


def test_on_the_host_s_network_faults_on_links_are_refused_and_only_sets_of_their_own_can_be_moved():
    able = {"node-a": frozenset({"disk", "links", "nft"}), "node-b": frozenset({"disk", "links"})}
    apart = KubernetesPlatform(OPTIONS, Found(Layout.STATEFULSET_PER_REPLICA, able, frozenset(), {}), {})
    assert apart.capabilities() == {"disk", "links", "moves"}
    hosted = msgspec.structs.replace(OPTIONS, replica=Overlay(pod={"hostNetwork": True}))
    assert KubernetesPlatform(hosted, Found(Layout.MESH, able, frozenset(), {}), {}).capabilities() == {"disk"}
