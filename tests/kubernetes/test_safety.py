"""What keeps a cluster safe is enforced by the API server, and what is missing is said before anything starts."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.conftest import KUBE, TOY, Cluster
from tests.kubernetes.dead_man import NODE, agent_of

SYSTEM = "torchchaos-system"
POD = {"member": "replica-0", "incarnation": 1, "pod": "x", "uid": "0" * 36, "pid": 2, "nics": {}}
FREEZE = {"type": "freeze", "target": "replica-0"}
KILL = {"type": "signal", "member": "replica-0", "process": "main", "signal": 9}


@pytest.fixture(scope="module")
def agents(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Name and id of each node's agent pod."""
    pods = json.loads(cluster.kubectl("-n", SYSTEM, "get", "pods", "-o", "json").stdout)["items"]
    return {pod["spec"]["nodeName"]: {key: pod["metadata"][key] for key in ("name", "uid")} for pod in pods}


@pytest.fixture
def injection(cluster: Cluster, agents):
    """One for a node that does not exist, so that no agent touches it; changed to `node` where that matters."""
    made: list[str] = []

    def injection(
        node: str = "nowhere",
        namespace: str | None = None,
        what: dict[str, object] = FREEZE,
        target: dict[str, object] = POD,
    ) -> tuple[str, str]:
        name = f"test-{len(made)}"
        body = {
            "apiVersion": "torchchaos.dev/v1alpha1",
            "kind": "Injection",
            "metadata": {"name": name, "namespace": namespace or cluster.namespace},
            "spec": {"node": node, "run": "none", "target": target, "injection": what},
        }
        done = cluster.kubectl("-n", namespace or cluster.namespace, "create", "-f", "-", text=json.dumps(body))
        made.append(name)
        return name, done.stderr

    yield injection
    cluster.kubectl("delete", "injections", "--all", "--wait=true")


def token(cluster: Cluster, pod: dict[str, str]) -> str:
    """Of an agent, bound to its pod, as that pod has it."""
    bound = ("--bound-object-kind", "Pod", "--bound-object-name", pod["name"], "--bound-object-uid", pod["uid"])
    done = cluster.kubectl("-n", SYSTEM, "create", "token", "torchchaos-agent", *bound)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_namespace_that_has_not_opted_in_is_refused_even_to_an_administrator(injection):
    _name, refusal = injection(namespace="default")
    assert "namespace default has not opted in to faults" in refusal


def test_an_agent_touches_injections_of_its_own_node_only(cluster, agents, injection):
    (node, own), (_other, other) = list(agents.items())[:2]
    name, _ = injection(node)
    for pod, allowed in ((other, False), (own, True)):
        seen = ("--type=merge", "-p", '{"metadata":{"labels":{"seen":"yes"}}}')
        done = cluster.kubectl("--token", token(cluster, pod), "patch", "injection", name, *seen)
        assert (done.returncode == 0) is allowed, done.stderr
        assert allowed or f"may not touch an injection of node {node}" in done.stderr


def test_an_agent_may_not_read_secrets_or_touch_pods(cluster, agents):
    agent = token(cluster, next(iter(agents.values())))
    for verb, what in (("get", "secrets"), ("delete", "pods"), ("create", "injections.torchchaos.dev")):
        assert cluster.kubectl("--token", agent, "auth", "can-i", verb, what).stdout.strip() == "no"


def test_what_was_asked_is_not_changed(cluster, injection):
    name, _ = injection()
    done = cluster.kubectl("patch", "injection", name, "--type=merge", "-p", '{"spec":{"node":"elsewhere"}}')
    assert "is not changed once it was asked for" in done.stderr


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (KILL, "is not on this node any more"),
        (FREEZE, "the Lease of run none was not seen renewed"),
        ({"type": "of_another_version"}, "this agent cannot read it: Invalid value 'of_another_version'"),
        ({**FREEZE, "target": "x", "colour": "blue"}, "this agent cannot read it: Object contains unknown field"),
    ],
    ids=["pod-replaced", "no-runner", "another-version", "unknown-field"],
)
def test_what_cannot_be_done_is_refused_with_the_reason_and_can_be_deleted(cluster, agents, injection, what, reason):
    node = next(iter(agents))
    name, said = injection(node, what=what)
    refused = cluster.kubectl("wait", "--for=jsonpath={.status.state}=Refused", f"injection/{name}", "--timeout=20s")
    assert refused.returncode == 0, said + refused.stderr
    assert reason in cluster.kubectl("get", "injection", name, "-o", "jsonpath={.status.reason}").stdout
    assert cluster.kubectl("delete", "injection", name, "--timeout=10s").returncode == 0


def test_a_node_of_the_control_plane_is_never_hit(cluster, agents, injection):
    node, label = next(iter(agents)), "node-role.kubernetes.io/control-plane"
    assert cluster.kubectl("label", "node", node, f"{label}=").returncode == 0
    try:
        what = {"type": "freeze_kubelet", "target": node}
        name, said = injection(node, what=what, target={"member": node, "nics": {}})
        refused = cluster.kubectl(
            "wait", "--for=jsonpath={.status.state}=Refused", f"injection/{name}", "--timeout=20s"
        )
        assert refused.returncode == 0, said + refused.stderr
        reason = cluster.kubectl("get", "injection", name, "-o", "jsonpath={.status.reason}").stdout
        assert reason == f"{node} carries the control plane of the cluster"
    finally:
        cluster.kubectl("label", "node", node, f"{label}-")


@pytest.mark.skipif(not KUBE, reason="TORCHCHAOS_KUBE is not set: the nodes are not on this machine")
def test_a_node_whose_agent_is_not_heard_of_is_not_used(cluster, agents, tmp_path):
    agent, fits = agent_of(NODE), len(agents) - 1
    long_ago = '{"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}'
    os.kill(agent, signal.SIGSTOP)
    try:
        assert cluster.kubectl("-n", SYSTEM, "patch", "lease", NODE, "--type=merge", "-p", long_ago).returncode == 0
        done = cluster.run("steady", tmp_path / "runs", *TOY, "--set", f"topology.nodes={fits}")
    finally:
        os.kill(agent, signal.SIGCONT)
    assert done.returncode == 64, done.stdout + done.stderr
    assert f"the cluster has {fits} with an agent" in done.stderr
    assert f"{NODE} is not used: its agent was last heard" in done.stderr


def test_a_runner_is_told_what_it_may_not_before_anything_starts(cluster, tmp_path):
    done = as_user(cluster, tmp_path, "nobody").run("steady", tmp_path / "runs", *TOY)
    assert done.returncode == 64, done.stdout + done.stderr
    assert "you may not list pods, watch pods" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_runner_with_the_shipped_roles_and_no_others_can_run(cluster, tmp_path, judged):
    runner = as_user(cluster, tmp_path, "runner")
    user = f"--serviceaccount={cluster.namespace}:runner"
    cluster.kubectl("create", "rolebinding", "test-runner", "--clusterrole=torchchaos-runner", user)
    cluster.kubectl("create", "clusterrolebinding", "test-runner", "--clusterrole=torchchaos-runner-cluster", user)
    try:
        done = runner.run("replica-lost", tmp_path / "runs", *TOY)
    finally:
        cluster.kubectl("delete", "rolebinding", "test-runner")
        cluster.kubectl("delete", "clusterrolebinding", "test-runner")
    assert done.returncode == 0, done.stdout + done.stderr
    assert judged(tmp_path / "runs")["fault_in_force"] == "PASS"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"namespace": "default"}, "namespace default has not opted in to faults; if it may be disturbed, type"),
        ({"namespace": "nowhere"}, "there is no namespace nowhere"),
        ({"context": "nowhere"}, "no cluster to talk to"),
        ({"namespase": "x"}, "did you mean 'namespace'?"),
    ],
)
def test_bad_platform_files_are_one_line_and_64(cluster, tmp_path, change, message):
    file = tmp_path / "platform.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(cluster.file.read_text()), **change}))
    where = ("--platform", "kubernetes", "--platform-file", file, "--runs", tmp_path / "runs")
    done = cluster.chaos("run", "steady", *where, *TOY)
    assert done.returncode == 64, done.stdout + done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_plan_with_more_nodes_than_the_cluster_is_refused_with_what_fits(cluster, tmp_path):
    done = cluster.run("steady", tmp_path / "runs", *TOY, "--set", "topology.nodes=100")
    assert done.returncode == 64, done.stdout + done.stderr
    assert "the plan has 101 nodes" in done.stderr or "topology.nodes" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_an_image_that_is_not_there_ends_the_run_with_its_name(cluster, tmp_path):
    file = tmp_path / "platform.yaml"
    options = yaml.safe_load(cluster.file.read_text())
    options["job"] = {**options["job"], "image": "lab.local/absent:1"}
    file.write_text(yaml.safe_dump(options))
    where = ("--platform", "kubernetes", "--platform-file", file, "--runs", tmp_path / "runs")
    done = cluster.chaos("run", "steady", *where, *TOY)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "lab.local/absent:1" in done.stderr
    assert cluster.left() == ""


def test_a_quota_that_is_exceeded_ends_the_run_with_the_server_s_words(cluster, tmp_path):
    assert cluster.kubectl("create", "quota", "none", "--hard=pods=0").returncode == 0
    try:
        done = cluster.run("steady", tmp_path / "runs", *TOY)
    finally:
        cluster.kubectl("delete", "quota", "none")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "got 1 pod too few within 30 s: " in done.stderr
    assert "exceeded quota: none" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert cluster.left() == ""


def as_user(cluster: Cluster, folder: Path, name: str) -> Cluster:
    """The same cluster for a service account that has no rights of its own."""
    cluster.kubectl("create", "serviceaccount", name)
    made = cluster.kubectl("create", "token", name)
    assert made.returncode == 0, made.stderr
    config = yaml.safe_load(Path(cluster.env["KUBECONFIG"]).read_text())
    config["users"] = [{"name": user["name"], "user": {"token": made.stdout.strip()}} for user in config["users"]]
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    return Cluster({**cluster.env, "KUBECONFIG": str(folder / "kubeconfig")}, cluster.file, cluster.namespace)
