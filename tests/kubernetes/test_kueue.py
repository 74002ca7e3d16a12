"""Kueue: what it admits, when, and what comes back after a pod death, whoever keeps the replicas.

Two nodes of eight fake GPUs in one rack, a third for the control plane; each replica asks for eight. The whole table,
layout by scenario: tests/benchmarks/kubernetes_kueue.py.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.journal import NAME, Reading
from chaos.model.events import Admission, MemberStarted
from tests.conftest import CHAOS
from tests.kubernetes.conftest import KUBE, TOY, Cluster, until

GPUS = 8
RACK = "example.com/rack"
TWO = ("--set", "workload.replicas=2", "--set", "topology.nodes=2", "--set", "baseline.timeout_s=60")
CONDITION = 'jsonpath={.items[*].status.conditions[?(@.type=="Admitted")].status}'
REPLICA = {"container": {"resources": {"limits": {"nvidia.com/gpu": GPUS}}}}

QUEUES = f"""
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {{name: test}}
spec: {{levels: [{{nodeLabel: {RACK}}}, {{nodeLabel: kubernetes.io/hostname}}]}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: gpus}}
spec: {{nodeLabels: {{example.com/pool: gpus}}, topologyName: test}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: test}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{{name: gpus, resources: [{{name: nvidia.com/gpu, nominalQuota: {2 * GPUS}}}]}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: team, namespace: NAMESPACE}}
spec: {{clusterQueue: test}}
"""


@pytest.fixture(scope="module")
def kueue(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with Kueue, fake GPUs and a queue, as `kube up --kueue --gpus 8` would have it."""
    manifests = Path(KUBE, "kueue.yaml")
    if not manifests.is_file():
        pytest.skip("set TORCHCHAOS_KUBE: its kueue.yaml is what these tests install")
    programs = Path(cluster.env["KUBECONFIG"]).parent / "bin"
    nodes = cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").stdout.split()
    for node in nodes:
        patch = json.dumps({"status": {"capacity": {"nvidia.com/gpu": str(GPUS)}}})
        cluster.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)
    for node in nodes[:2]:
        cluster.kubectl("label", "node", node, "example.com/pool=gpus", f"{RACK}=r0")
    # Not on a node that these tests take away.
    pinned = f"nodeSelector: {{kubernetes.io/hostname: {nodes[-1]}}}\n      serviceAccountName: kueue-controller"
    text = manifests.read_text().replace("@BIN@", str(programs))
    text = text.replace("serviceAccountName: kueue-controller", pinned)
    apply = ["kubectl", "apply", "--server-side", "-f", "-"]  # In many namespaces, each named in the manifests.
    done = subprocess.run(apply, env=cluster.env, capture_output=True, text=True, timeout=120, input=text)
    assert done.returncode == 0, done.stderr
    system = ("-n", "kueue-system")
    ready = ("rollout", "status", "deploy/kueue-controller-manager", "--timeout=50s")
    until(lambda: cluster.kubectl(*system, *ready).returncode == 0, "Kueue runs", within_s=150)
    queues = QUEUES.replace("NAMESPACE", cluster.namespace)
    until(lambda: cluster.kubectl("apply", "-f", "-", text=queues).returncode == 0, "its queues are taken")
    tried = ("create", "--dry-run=server", "-f", "-")
    until(lambda: cluster.kubectl(*tried, text=foreign_pod(1)).returncode == 0, "its webhooks answer", within_s=120)
    yield cluster
    for kind in ("localqueue", "clusterqueue", "resourceflavor", "topology"):
        cluster.kubectl("delete", kind, "--all")
    # Without its program nobody answers its webhooks, and no pod could be made.
    for kind in ("validatingwebhookconfiguration", "mutatingwebhookconfiguration"):
        cluster.kubectl("delete", kind, "-l", "app.kubernetes.io/name=kueue")
    cluster.kubectl("delete", "namespace", "kueue-system", "--wait=false")
    kinds = cluster.kubectl("get", "crd", "-o", "name").stdout.split()
    cluster.kubectl("delete", *(kind for kind in kinds if kind.endswith(".kueue.x-k8s.io")))
    until(lambda: cluster.kubectl("get", "--raw", "/apis/kueue.x-k8s.io").returncode != 0, "Kueue is gone")


LAYOUTS = {
    "mesh": {"layout": "mesh"},
    "mesh-per-replica": {"layout": "mesh-per-replica"},
    "pod group": {"layout": "mesh-per-replica", "pod_group": True},
    "statefulset": {"layout": "statefulset"},
}


def queued(cluster: Cluster, folder: Path, layout: str, admitted_within_s: float = 20) -> Cluster:
    """Two replicas of eight GPUs each, in one rack."""
    of_layout = LAYOUTS[layout]
    queue = {"name": "team", "required": RACK, "admitted_within_s": admitted_within_s}
    queue["pod_group"] = of_layout.get("pod_group", False)
    return cluster.saying(folder, layout=of_layout["layout"], queue=queue, levels=[RACK], replica=REPLICA)


@dataclass
class Told:
    """What a run's journal says of places: who was admitted, and whose lives began."""

    admitted: dict[str, float]
    begun: list[str]

    @classmethod
    def by(cls, runs: Path) -> Told:
        (folder,) = runs.iterdir()
        events = list(Reading(folder / NAME).events())
        claims = [event for event in events if isinstance(event, Admission) and event.admitted]
        admitted = {member: claim.t_s for claim in reversed(claims) for member in claim.members}
        begun = [event.member for event in events if isinstance(event, MemberStarted)]
        return cls(admitted, sorted(member for member in begun if member.startswith("replica")))


def foreign_pod(gpus: int) -> str:
    """A pod of somebody else's, which no queue knows."""
    container = {
        "name": "other",
        "image": "registry.k8s.io/pause:3.10",
        "imagePullPolicy": "Never",
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }
    spec = {"nodeSelector": {"example.com/pool": "gpus"}, "containers": [container], "terminationGracePeriodSeconds": 0}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign"}, "spec": spec})


@contextmanager
def foreign(cluster: Cluster, gpus: int) -> Iterator[None]:
    """That pod holds GPUs of the pool."""
    assert cluster.kubectl("create", "-f", "-", text=foreign_pod(gpus)).returncode == 0
    assert cluster.kubectl("wait", "--for=condition=Ready", "pod/foreign", "--timeout=30s").returncode == 0
    try:
        yield
    finally:
        cluster.kubectl("delete", "pod", "foreign", "--ignore-not-found")


@pytest.mark.parametrize(("layout", "number"), [("mesh", 0), ("mesh-per-replica", 1)])
def test_with_14_of_16_gpus_free_only_meshes_of_their_own_begin_without_the_others(
    kueue, operator, tmp_path, layout, number
):
    with foreign(kueue, 2):
        done = queued(kueue, tmp_path, layout).run("steady", tmp_path / "runs", *TOY, *TWO)
    assert done.returncode == 2, done.stdout + done.stderr
    told = Told.by(tmp_path / "runs")
    assert len(told.admitted) == number, done.stderr
    assert set(told.begun) <= set(told.admitted)
    missing = ", ".join(sorted({"replica-0", "replica-1"} - set(told.admitted)))
    assert f"the queue team did not admit {missing} in 20 s: " in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert kueue.left() == ""


def test_a_dead_pod_s_successor_gets_its_place_without_queueing_again(kueue, operator, tmp_path, judged):
    level = ("--set", f"monitors.placement.level={RACK}")
    done = queued(kueue, tmp_path, "mesh").run("kueue/pod-lost", tmp_path / "runs", *TOY, *TWO, *level)
    assert done.returncode == 0, done.stdout + done.stderr
    assert judged(tmp_path / "runs")["placement"] == "PASS"
    told = Told.by(tmp_path / "runs")
    assert len(told.begun) == 3
    assert sorted(told.admitted) == ["replica-0", "replica-1"]
    assert kueue.left() == ""


def test_in_a_plain_pod_group_the_first_death_is_final(kueue, operator, tmp_path):
    level = ("--set", f"monitors.placement.level={RACK}", "--set", "quiesce.timeout_s=15")
    runs = tmp_path / "runs"
    done = queued(kueue, tmp_path, "pod group").run("known-bugs/kueue-pod-group", runs, *TOY, *TWO, *level)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Told.by(runs).begun == ["replica-0", "replica-1"]
    assert kueue.left() == ""


def test_a_queue_that_is_not_there_is_one_clear_error(kueue, tmp_path):
    other = kueue.saying(tmp_path, layout="statefulset", queue={"name": "nobody", "admitted_within_s": 5})
    done = other.run("steady", tmp_path / "runs", *TOY, *TWO)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the queue nobody did not admit replica-0, replica-1 in 5 s" in done.stderr
    assert kueue.left() == ""


def test_a_foreign_pod_that_ends_is_not_noticed_until_a_node_changes(kueue, operator, tmp_path):
    """Kueue 0.17.0, kubernetes-sigs/kueue#8653: the waiting job is not looked at again."""
    mesh = queued(kueue, tmp_path, "mesh", admitted_within_s=60)
    where = ("--platform", "kubernetes", "--platform-file", mesh.file, "--runs", tmp_path / "runs")
    command = [CHAOS, "run", "steady", *where, *TOY, *TWO]
    with foreign(kueue, 2), subprocess.Popen(command, env=kueue.env, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        try:
            assert any("not admitted: " in line for line in run.stdout)
            kueue.kubectl("delete", "pod", "foreign")
            for _ in range(20):
                assert kueue.kubectl("get", "workloads", "-o", CONDITION).stdout != "True"
            node = kueue.kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}").stdout
            kueue.kubectl("label", "node", node, "example.com/touched=yes")
            assert any("admitted on gpus" in line for line in run.stdout)
            run.send_signal(signal.SIGINT)  # What was to be seen is seen.
            run.communicate()
            assert run.returncode == 2
        finally:
            run.kill()
    assert kueue.left() == ""
