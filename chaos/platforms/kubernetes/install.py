"""Puts agents, rights and policies into a cluster, and takes them out again: plain manifests, fit for GitOps as well.

chaos install kubernetes --platform-file FILE [--print]
chaos uninstall kubernetes --platform-file FILE
"""

from __future__ import annotations

from pathlib import Path

import anyio
import yaml

from chaos.model.errors import MachineUnfit
from chaos.platforms.kubernetes.client import Kube, KubeError, Object
from chaos.platforms.kubernetes.clocks import age_s
from chaos.platforms.kubernetes.objects import GROUP, OPTED_IN, VERSION
from chaos.platforms.kubernetes.options import Options, laid_over
from chaos.platforms.kubernetes.preflight import AGENT, AGENT_DEAD_S, SYSTEM

READY_S = 120.0
GONE_S = 60.0
POLL_S = 0.2

_INJECTIONS = f"/apis/{GROUP}/{VERSION}"
_FOLDER = Path(__file__).with_name("manifests")
_FILES = ("definition.yaml", "agent.yaml", "runner.yaml", "policies.yaml")
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}


def manifests(options: Options) -> list[Object]:
    """Everything that is installed, in its order; last the job's namespace, which thereby opts in."""
    found = [item for name in _FILES for item in yaml.safe_load_all((_FOLDER / name).read_text())]
    job = {"metadata": {"name": options.namespace, "labels": {OPTED_IN: "enabled"}}}
    return [*(_with_program(item, options) for item in found), {"apiVersion": "v1", "kind": "Namespace", **job}]


async def install(kube: Kube, options: Options) -> None:
    """There afterwards, and every agent ready. MachineUnfit."""
    try:
        for item in manifests(options):
            await kube.apply(_path(item), item)
        with anyio.move_on_after(READY_S):
            while not await _agents_ready(kube):
                await anyio.sleep(POLL_S)
            return
    except KubeError as error:
        raise MachineUnfit(f"not installed: {error}") from error
    raise MachineUnfit(f"the agents were not ready within {READY_S:g} s; type: kubectl -n {SYSTEM} describe pods")


async def uninstall(kube: Kube, options: Options) -> None:
    """Gone afterwards, but for the job's namespace, which is the user's. MachineUnfit.

    Injections go first, while there are agents to give back what they hold.
    """
    try:
        for item in await _injections(kube):
            await kube.delete(f"{_INJECTIONS}/namespaces/{item['namespace']}/injections/{item['name']}")
        with anyio.move_on_after(GONE_S) as waiting:
            while await _injections(kube):
                await anyio.sleep(POLL_S)
        if waiting.cancelled_caught:
            held = ", ".join(item["name"] for item in await _injections(kube))
            raise MachineUnfit(f"{held} not given back within {GONE_S:g} s: do the agents live?")
        paths = [_path(manifest) for manifest in reversed(manifests(options)[:-1])]
        for path in paths:
            await kube.delete(path)
        with anyio.move_on_after(GONE_S) as waiting:
            while there := [path for path in paths if await _exists(kube, path)]:
                await anyio.sleep(POLL_S)
        if waiting.cancelled_caught:
            raise MachineUnfit(f"not gone within {GONE_S:g} s: {', '.join(there)}")
    except KubeError as error:
        raise MachineUnfit(f"not uninstalled: {error}") from error


async def _exists(kube: Kube, path: str) -> bool:
    try:
        await kube.get(path)
    except KubeError as error:
        if error.status == 404:
            return False
        raise
    return True


async def _injections(kube: Kube) -> list[Object]:
    """The heads of all there are; none where their kind is not known."""
    try:
        return [item["metadata"] for item in (await kube.get(f"{_INJECTIONS}/injections"))["items"]]
    except KubeError as error:
        if error.status == 404:
            return []
        raise


async def _agents_ready(kube: Kube) -> bool:
    """Whether each node has the agent that was asked for last, and has heard its first heartbeat."""
    found = await kube.get(f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets/torchchaos-agent")
    status, wanted = found["status"], found["status"].get("desiredNumberScheduled", 0)
    if status.get("observedGeneration") != found["metadata"]["generation"] or not wanted:
        return False
    if status.get("updatedNumberScheduled", 0) < wanted or status.get("numberReady", 0) < wanted:
        return False
    leases = await kube.get(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases", labelSelector=AGENT)
    return sum(age_s(item["spec"]["renewTime"]) < AGENT_DEAD_S for item in leases["items"]) >= int(wanted)


def _with_program(item: Object, options: Options) -> Object:
    """The agents' DaemonSet gets the image, the interpreter and what else the platform file says."""
    if item["kind"] != "DaemonSet":
        return item
    pod = item["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command = [options.agent.python, *container["command"][1:]]
    full = laid_over({**container, "image": options.agent.image, "command": command}, options.agent.container)
    template = {"spec": laid_over({**pod, "containers": [full]}, options.agent.pod)}
    return {**item, "spec": {**item["spec"], "template": {**item["spec"]["template"], **template}}}


def _path(item: Object) -> str:
    meta = item["metadata"]
    return f"{_PATHS[item['kind']].format(meta.get('namespace', ''))}/{meta['name']}"
