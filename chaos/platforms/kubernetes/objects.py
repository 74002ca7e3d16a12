"""The manifests of a run: each detail that decides whether recovery works, with its reason, in this one place.

Which of them there are is the layout's affair (`layout`).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from chaos.model.injections import Interface
from chaos.model.ports import Deployment
from chaos.platforms.kubernetes.client import Object
from chaos.platforms.kubernetes.entry import SCRATCH
from chaos.platforms.kubernetes.layout import REPLICA, Keeper, Keepers, Kind
from chaos.platforms.kubernetes.options import Options, Overlay, Queue, laid_over

GROUP = "torchchaos.dev"
VERSION = "v1alpha1"
MESH_API = "monarch.pytorch.org/v1alpha1"
KUEUE = "kueue.x-k8s.io"
RUN, MEMBER, ROLE = f"{GROUP}/run", f"{GROUP}/member", f"{GROUP}/role"
ABORTED = f"{GROUP}/aborted"
"""Annotation of a run's Lease: its runner ends the run."""
OPTED_IN = f"{GROUP}/chaos"
"""Label of a namespace in which faults may be made, with the value `enabled`."""

CONTAINER = "member"
LEASE_TTL_S = 3
CONTROLLER = "controller"
CONTROLLER_GRACE_S = 30
MEMBER_GRACE_S = 6
SCRATCH_LIMIT = "1Gi"

_ENTRY = Path(__file__).with_name("entry.py")
_FOLDER = "/torchchaos"


class Names:
    """What the objects of one run are called. Short, since every pod's full name must fit into a host name."""

    def __init__(self, run: str, namespace: str) -> None:
        self.run = run
        self.namespace = namespace
        self.core = f"/api/v1/namespaces/{namespace}"
        self.sets = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
        self.meshes = f"/apis/{MESH_API}/namespaces/{namespace}/monarchmeshes"
        self.leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.injections = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/injections"
        self._keepers = {Kind.POD: f"{self.core}/pods", Kind.SET: self.sets, Kind.MESH: self.meshes}
        self.selector = f"{RUN}={self.run}"

    @classmethod
    def of(cls, run_id: str, namespace: str) -> Names:
        return cls("tc" + hashlib.sha256(run_id.encode()).hexdigest()[:6], namespace)

    def keepers(self, kind: Kind) -> str:
        """Where keepers of a kind are made."""
        return self._keepers[kind]


def lease(names: Names, holder: str, now: str) -> Object:
    """Owner of everything in the run. While it is renewed, agents hold what they are asked to."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": names.run, "namespace": names.namespace, "labels": {RUN: names.run}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": LEASE_TTL_S, "renewTime": now},
    }


def owned(
    names: Names,
    owner: Object,
    kind: str,
    api: str,
    name: str,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    """The head of an object that goes when the run's Lease goes."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    meta = {"name": name, "namespace": names.namespace, "labels": {RUN: names.run, **(labels or {})}}
    meta["annotations"] = annotations or {}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {**meta, "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}]},
    }


def config(names: Names, owner: Object, deployment: Deployment, keepers: Keepers, options: Options) -> Object:
    """The entry script, and what it is to fill in."""
    workload = deployment.workload
    job: dict[str, Any] = {
        "python": options.job.python,
        "data_interface": options.nics()[Interface.DATA.value],
        "commands": {member: workload.command(member) for member in workload.members()},
        "members": keepers.members(),
        "hosts": keepers.hosts(),
    }
    return {
        **owned(names, owner, "ConfigMap", "v1", names.run),
        "data": {"entry.py": _ENTRY.read_text(), "job.json": json.dumps(job)},
    }


def service(names: Names, owner: Object) -> Object:
    """Names for the pods. A pod that is not ready has to be found as well: healing and attaching come before."""
    spec = {"clusterIP": "None", "selector": {RUN: names.run}, "publishNotReadyAddresses": True}
    return {**owned(names, owner, "Service", "v1", names.run), "spec": spec}


def keeper(
    names: Names, owner: Object, keeper: Keeper, nodes: list[str], deployment: Deployment, options: Options
) -> Object:
    """What keeps members alive, on these nodes."""
    labels = {RUN: names.run, ROLE: keeper.role}
    if len(keeper.members) == 1:
        labels[MEMBER] = keeper.members[0]
    more = options.replica if keeper.role == REPLICA else Overlay()
    spec = _pod(names, keeper, nodes, deployment, options, more)
    own, pods, notes = _queueing(names, keeper, deployment, options.queue)
    notes = {**notes, **more.annotations}
    template = {"metadata": {"labels": labels | pods, "annotations": notes}, "spec": spec}
    match keeper.kind:
        case Kind.POD:
            ((pod, _member),) = keeper.pods().items()
            head = owned(names, owner, "Pod", "v1", pod, labels | own | pods, notes)
            return {**head, "spec": {**spec, "hostname": pod, "restartPolicy": "Never"}}
        case Kind.MESH:
            head = owned(names, owner, "MonarchMesh", MESH_API, keeper.name, labels | own)
            return {**head, "spec": {"replicas": len(keeper.members), "podTemplate": template}}
        case Kind.SET:
            return {
                **owned(names, owner, "StatefulSet", "apps/v1", keeper.name, labels | own),
                "spec": {
                    "serviceName": keeper.service,
                    "replicas": len(keeper.members),
                    # A pod that does not come up must not keep its fellows from it.
                    "podManagementPolicy": "Parallel",
                    # A changed template, such as another node, is for the next pod; faults alone end the present one.
                    "updateStrategy": {"type": "OnDelete"},
                    "selector": {"matchLabels": labels},
                    "template": template,
                },
            }


def _queueing(
    names: Names, keeper: Keeper, deployment: Deployment, queue: Queue | None
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """What makes Kueue admit members: labels of their keeper, labels of their pods, annotations of their pods."""
    if queue is None or not keeper.queued:
        return {}, {}, {}
    wishes = {"required": queue.required, "preferred": queue.preferred}
    notes = {f"{KUEUE}/podset-{wish}-topology": level for wish, level in wishes.items() if level}
    named = {f"{KUEUE}/queue-name": queue.name}
    if not queue.pod_group:
        return named, {}, notes
    grouped = {**named, f"{KUEUE}/pod-group-name": names.run}
    return {}, grouped, {**notes, f"{KUEUE}/pod-group-total-count": str(deployment.workload.replicas)}


def affinity(nodes: list[str]) -> Object:
    """One of these nodes and no other, by name, of which a term takes one; the label of that name may differ."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _pod(
    names: Names, keeper: Keeper, nodes: list[str], deployment: Deployment, options: Options, more: Overlay
) -> Object:
    container = {
        "name": CONTAINER,
        "image": options.job.image,
        "command": [options.job.python, "-I", "-S", f"{_FOLDER}/entry.py"],
        "env": [
            {"name": "TORCHCHAOS_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "TORCHCHAOS_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            *({"name": key, "value": value} for key, value in deployment.workload.env.items()),
        ],
        "volumeMounts": [
            {"name": "torchchaos", "mountPath": _FOLDER, "readOnly": True},
            {"name": "scratch", "mountPath": SCRATCH},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    spec = {
        # A healing replica fetches from what gethostname() says of the donor: it must resolve in other pods.
        "setHostnameAsFQDN": True,
        "subdomain": keeper.service,
        # The kernel ignores SIGTERM for a PID 1 without a handler, and the pod would train on for its whole grace.
        # The pause container is PID 1 then, and adopts and collects what a member leaves behind.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": CONTROLLER_GRACE_S if keeper.role == CONTROLLER else MEMBER_GRACE_S,
        # The plan's nodes and no other; none if the queue chooses.
        "affinity": affinity(nodes) if nodes else {},
        "topologySpreadConstraints": _spread(names, keeper),
        # A job has no business with the API server.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [laid_over(laid_over(container, options.job.container), more.container)],
        "volumes": [
            {"name": "torchchaos", "configMap": {"name": names.run}},
            # In memory and of a size: a disk fault fills this and never the node's own disk.
            {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": SCRATCH_LIMIT}},
            # A container has 64 MiB otherwise, too little for data loaders and NCCL.
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }  # fmt: skip
    merged: Object = laid_over(laid_over(spec, options.job.pod), more.pod)
    return merged


def _spread(names: Names, keeper: Keeper) -> list[Object]:
    """The scheduler is to use all nodes of a keeper's pods, as the plan does."""
    if len(keeper.members) == 1:
        return []
    selector = {"matchLabels": {RUN: names.run, ROLE: keeper.role}}
    rule = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    return [{**rule, "labelSelector": selector}]
