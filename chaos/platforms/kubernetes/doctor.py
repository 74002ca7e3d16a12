"""What a cluster can do for runs, and what to type for the rest: `chaos doctor --platform kubernetes`.

It reads, and asks for its own rights; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from chaos.platforms.kubernetes.agent.facts import FACTS, Facts
from chaos.platforms.kubernetes.client import Kube, KubeError, Object
from chaos.platforms.kubernetes.clocks import age_s
from chaos.platforms.kubernetes.objects import GROUP, KUEUE, MESH_API, OPTED_IN, VERSION
from chaos.platforms.kubernetes.options import Options
from chaos.platforms.kubernetes.preflight import (
    AGENT,
    AGENT_DEAD_S,
    AGENTS,
    BIND,
    CAPABILITIES,
    INSTALL,
    SYSTEM,
    rights_lacking,
)
from chaos.platforms.local.doctor import Check

_REMEDIES = {
    "nft": "put nftables into the agent's image",
    "netem": "on the node, as root: modprobe sch_netem",
    "cgroup.cpu": "mount /sys/fs/cgroup of the node into the agent, writable: see `chaos install kubernetes --print`",
    "kubelet": "none, where the kubelet is part of another program; faults on whole nodes are refused",
}
"""What an agent may lack, by the names of `injections.needs`."""


async def probe(kube: Kube, options: Options) -> list[Check]:
    """Look at everything. What cannot be reached is a check that fails, and the last one."""
    try:
        version = (await kube.get("/version"))["gitVersion"]
    except KubeError as error:
        return [Check("API server", False, str(error), "runs talk to it alone", "set KUBECONFIG, or context: in FILE")]
    reached = Check("API server", True, f"{kube.host}, {version}", "runs talk to it alone")
    whole = [await _rights(kube, options.namespace), await _namespace(kube, options.namespace), await _kinds(kube)]
    return [reached, *whole, await _operator(kube), await _queue(kube, options), *await _nodes(kube, options)]


async def _rights(kube: Kube, namespace: str) -> Check:
    meaning = f"rights of a runner in namespace {namespace}"
    try:
        lacking = await rights_lacking(kube, namespace)
    except KubeError as error:
        return Check("rights", False, str(error), meaning, BIND.format(namespace))
    found = f"you may not {', '.join(lacking)}" if lacking else "all"
    return Check("rights", not lacking, found, meaning, BIND.format(namespace) if lacking else "")


async def _namespace(kube: Kube, namespace: str) -> Check:
    meaning = "where the job runs"
    found = await _read(kube, f"/api/v1/namespaces/{namespace}")
    if isinstance(found, str):
        return Check("namespace", False, found, meaning, INSTALL)
    opted_in = found["metadata"].get("labels", {}).get(OPTED_IN) == "enabled"
    remedy = "" if opted_in else f"kubectl label namespace {namespace} {OPTED_IN}=enabled"
    return Check("namespace", opted_in, f"{namespace}, {'' if opted_in else 'not '}open to faults", meaning, remedy)


async def _kinds(kube: Kube) -> Check:
    found = await _read(kube, f"/apis/{GROUP}/{VERSION}")
    known = not isinstance(found, str)
    said = f"{GROUP}/{VERSION}" if known else str(found)
    return Check("injections", known, said, "the resource that asks agents for faults", "" if known else INSTALL)


async def _operator(kube: Kube) -> Check:
    meaning = "layouts mesh and mesh-per-replica"
    if isinstance(await _read(kube, f"/apis/{MESH_API}"), str):
        remedy = "install the Monarch operator; without it, replicas are StatefulSets"
        return Check("Monarch operator", False, f"no {MESH_API}", meaning, remedy)
    programs = await _programs(kube, "monarch")
    remedy = "" if programs else "start the Monarch operator: its MonarchMesh is known, its program was not found"
    return Check("Monarch operator", bool(programs), f"{MESH_API}; {programs or 'no program'}", meaning, remedy)


async def _queue(kube: Kube, options: Options) -> Check:
    meaning = "queue: in the platform file"
    found = await _read(kube, f"/apis/{KUEUE}")
    if isinstance(found, str):
        return Check(
            "Kueue", options.queue is None, f"no {KUEUE}", meaning, "install Kueue, or remove queue: from FILE"
        )
    version = found["preferredVersion"]["version"]
    said = f"{version}; {await _programs(kube, 'kueue') or 'no program'}"
    if options.queue is None:
        return Check("Kueue", True, said, meaning)
    path = f"/apis/{KUEUE}/{version}/namespaces/{options.namespace}/localqueues/{options.queue.name}"
    if isinstance(missing := await _read(kube, path), str):
        return Check("Kueue", False, f"{said}; {missing}", meaning, f"create a LocalQueue {options.queue.name}")
    return Check("Kueue", True, f"{said}; LocalQueue {options.queue.name}", meaning)


async def _programs(kube: Kube, word: str) -> str:
    """Images of the deployments that bear a word in their names, which tell their versions; "" when there are none."""
    found = await _read(kube, "/apis/apps/v1/deployments")
    if isinstance(found, str):
        return "you may not list deployments, which tell its version"
    named = [item for item in found["items"] if word in item["metadata"]["name"]]
    return ", ".join(one["image"] for item in named for one in item["spec"]["template"]["spec"]["containers"])


async def _nodes(kube: Kube, options: Options) -> list[Check]:
    leases = await _read(kube, AGENTS, labelSelector=AGENT)
    nodes = await _read(kube, "/api/v1/nodes")
    for found in (leases, nodes):
        if isinstance(found, str):
            bind = "kubectl create clusterrolebinding torchchaos --clusterrole=torchchaos-runner-cluster --user=YOU"
            return [Check("nodes", False, found, "where members run", bind)]
    assert not isinstance(leases, str) and not isinstance(nodes, str)
    agents = {item["metadata"]["name"]: item for item in leases["items"]}
    own = options.nics() if options.replica.pod.get("hostNetwork") else {}
    wanted = sorted({*own.values(), *options.node_nics().values()})
    return [check for node in nodes["items"] for check in _node(node, agents.get(node["metadata"]["name"]), wanted)]


def _node(node: Object, agent: Object | None, nics: list[str]) -> Iterator[Check]:
    name = node["metadata"]["name"]
    ready = {one["type"]: one["status"] for one in node["status"]["conditions"]}.get("Ready") == "True"
    closed = node["spec"].get("unschedulable", False)
    info = node["status"]["nodeInfo"]
    said = f"{info['osImage']}, kernel {info['kernelVersion']}, {info['containerRuntimeVersion']}"
    said += "" if ready else "; not ready"
    remedy = f"kubectl describe node {name}" if not ready else f"kubectl uncordon {name}" if closed else ""
    yield Check(name, ready and not closed, said + ("; cordoned" if closed else ""), "takes members", remedy)
    if agent is None:
        yield Check(f"{name} agent", False, "none was ever heard of", "faults on this node", INSTALL)
    else:
        yield from _agent(name, agent, nics)


def _agent(name: str, agent: Object, nics: list[str]) -> Iterator[Check]:
    """What an agent tells of itself and of its node."""
    silent_s = age_s(agent["spec"]["renewTime"])
    notes = agent["metadata"].get("annotations", {})
    lacks = sorted(set(_REMEDIES) - set(notes.get(CAPABILITIES, "").split(",")))
    if silent_s >= AGENT_DEAD_S:
        logs = f"kubectl -n {SYSTEM} logs -l app.kubernetes.io/name=torchchaos-agent --prefix"
        yield Check(f"{name} agent", False, f"silent for {silent_s:.0f} s", "faults on this node", logs)
        return
    found = f"lives; lacks {', '.join(lacks)}" if lacks else "lives, and can do everything"
    yield Check(f"{name} agent", True, found, "faults on this node")
    for lack in lacks:
        yield Check(f"{name} {lack}", False, "not there", "some faults need it", _REMEDIES[lack])
    facts = msgspec.json.decode(notes.get(FACTS, "{}"), type=Facts)
    missing = sorted(set(nics) - set(facts.nics))
    rdma = ", ".join(map(str, facts.rdma)) or "no RDMA"
    said = f"cgroup v{facts.cgroups}; {', '.join(facts.nics)}; {rdma}"
    remedy = f"there is no {', '.join(missing)}: correct interfaces in the platform file" if missing else ""
    yield Check(f"{name} network", not missing, said, "control groups, interfaces and RDMA links", remedy)


async def _read(kube: Kube, path: str, **query: object) -> Object | str:
    """What is there, or why it cannot be read."""
    try:
        return await kube.get(path, **query)
    except KubeError as error:
        return "it does not exist" if error.status == 404 else str(error)
