"""What has to be true before a run begins: one clear sentence for what is not."""

from __future__ import annotations

import logging

from chaos.model.errors import BadInput, MachineUnfit
from chaos.platforms.kubernetes.client import Kube, KubeError, Object
from chaos.platforms.kubernetes.clocks import age_s
from chaos.platforms.kubernetes.objects import GROUP, OPTED_IN, VERSION

SYSTEM = "torchchaos-system"
"""Namespace of the agents."""
AGENTS = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
AGENT = f"{GROUP}/agent"
"""Label of an agent's Lease, which has the name of its node."""
CAPABILITIES = f"{GROUP}/capabilities"
"""Annotation of an agent's Lease: what that can do on its node, separated by commas."""
AGENT_DEAD_S = 60.0
INSTALL = "type: chaos install kubernetes --platform-file FILE"
BIND = "kubectl -n {} create rolebinding torchchaos --clusterrole=torchchaos-runner --user=YOU"
RIGHTS = (
    ("", "pods", "list watch create delete"),
    ("", "pods/log", "get"),
    ("", "pods/eviction", "create"),
    ("", "events", "list"),
    ("", "configmaps", "create list delete"),
    ("", "services", "create list delete"),
    ("apps", "statefulsets", "create list patch delete"),
    ("monarch.pytorch.org", "monarchmeshes", "create list delete"),
    ("kueue.x-k8s.io", "workloads", "list watch delete"),
    ("coordination.k8s.io", "leases", "create list patch delete"),
    (GROUP, "injections", "create list watch delete"),
)
"""What a runner does in the job's namespace: each is asked for by name in manifests/runner.yaml too."""

log = logging.getLogger(__name__)


async def look(kube: Kube, namespace: str) -> dict[str, frozenset[str]]:
    """The nodes on which a run may place members, and what their agents can do. BadInput, MachineUnfit."""
    try:
        await kube.get("/version")
        await _check_rights(kube, namespace)
        await _check_namespace(kube, namespace)
        await _check_definition(kube)
        return await _agents(kube)
    except KubeError as error:
        raise MachineUnfit(f"the cluster cannot be used: {error}") from error


async def rights_lacking(kube: Kube, namespace: str) -> list[str]:
    """What a runner does and we may not, as verb and resource."""
    lacking = []
    for group, resource, verbs in RIGHTS:
        for verb in verbs.split():
            name, _, sub = resource.partition("/")
            wish = {"namespace": namespace, "group": group, "resource": name, "subresource": sub, "verb": verb}
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
            asked = {**review, "spec": {"resourceAttributes": wish}}
            answer = await kube.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)
            if not answer["status"]["allowed"]:
                lacking.append(f"{verb} {resource}")
    return lacking


async def _check_rights(kube: Kube, namespace: str) -> None:
    if lacking := await rights_lacking(kube, namespace):
        raise BadInput(
            f"you may not {', '.join(lacking)} in namespace {namespace}; have its owner bind you to the ClusterRole "
            f"torchchaos-runner: {BIND.format(namespace)}"
        )


async def _check_namespace(kube: Kube, namespace: str) -> None:
    try:
        found = await kube.get(f"/api/v1/namespaces/{namespace}")
    except KubeError as error:
        if error.status != 404:
            raise
        raise BadInput(f"there is no namespace {namespace}; {INSTALL}") from None
    if found["metadata"].get("labels", {}).get(OPTED_IN) != "enabled":
        raise BadInput(
            f"namespace {namespace} has not opted in to faults; if it may be disturbed, type: "
            f"kubectl label namespace {namespace} {OPTED_IN}=enabled"
        )


async def _check_definition(kube: Kube) -> None:
    try:
        await kube.get(f"/apis/{GROUP}/{VERSION}")
    except KubeError as error:
        if error.status != 404:
            raise
        known = await _known(kube)
        raise BadInput(f"this cluster has {known} of {GROUP}, and {VERSION} is needed; {INSTALL}") from None


async def _known(kube: Kube) -> str:
    try:
        group = await kube.get(f"/apis/{GROUP}")
    except KubeError:
        return "no version"
    return ", ".join(version["version"] for version in group["versions"])


async def _agents(kube: Kube) -> dict[str, frozenset[str]]:
    leases = await kube.get(AGENTS, labelSelector=AGENT)
    agents = {item["metadata"]["name"]: item for item in leases["items"]}
    nodes = {item["metadata"]["name"]: item for item in (await kube.get("/api/v1/nodes"))["items"]}
    unfit = {name: why for name, node in nodes.items() if (why := _unfit(node, agents.get(name)))}
    for name, why in unfit.items():
        log.warning("%s is not used: %s", name, why)
    fit = {
        name: frozenset(agents[name]["metadata"]["annotations"][CAPABILITIES].split(","))
        for name in nodes.keys() - unfit.keys()
    }
    if not fit:
        raise BadInput(f"no node of this cluster is ready and has a living agent; {INSTALL}")
    return fit


def _unfit(node: Object, agent: Object | None) -> str:
    """Why no member may be placed on a node; empty when it may."""
    conditions = {condition["type"]: condition["status"] for condition in node["status"]["conditions"]}
    if conditions.get("Ready") != "True":
        return "it is not ready"
    if node["spec"].get("unschedulable", False):
        return "it is cordoned"
    if agent is None:
        return "it has no agent"
    heard_s = age_s(agent["spec"]["renewTime"])
    return f"its agent was last heard {heard_s:.0f} s ago by this machine's clock" if heard_s > AGENT_DEAD_S else ""
