"""Tells the cluster, by a Lease of the node's name, that this agent lives and what it can do."""

from __future__ import annotations

import logging
import os
import shutil

import anyio
import msgspec
from anyio import to_thread

from chaos.agent.linux import rdma
from chaos.model.injections import rails
from chaos.platforms.kubernetes.agent import machine
from chaos.platforms.kubernetes.agent.carried import Carried
from chaos.platforms.kubernetes.agent.facts import FACTS, facts
from chaos.platforms.kubernetes.client import Kube, KubeError
from chaos.platforms.kubernetes.clocks import micro_time
from chaos.platforms.kubernetes.preflight import AGENT, CAPABILITIES, SYSTEM
from chaos.platforms.local import cgroups

BEAT_S = 2.0
"""Often, since a runner that has just begun learns the node's clock from it."""
_LIMITS = {"cpu": "cpu", "memory": "memory", "io": "io", "blkio": "io", "pids": "pids"}
"""What controllers of either version limit."""

log = logging.getLogger(__name__)


async def beat(kube: Kube, node: str, carried: Carried) -> None:
    """As long as this runs."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{node}"
    notes = {CAPABILITIES: ",".join(sorted(capabilities()))}
    while True:
        notes[FACTS] = msgspec.json.encode(facts(await to_thread.run_sync(carried.look))).decode()
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": node, "labels": {AGENT: "alive"}, "annotations": notes},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": round(BEAT_S * 3), "renewTime": micro_time()},
        }
        try:
            await kube.apply(path, body)
        except KubeError as error:
            log.warning("no heartbeat: %s", error)
        await anyio.sleep(BEAT_S)


def capabilities() -> frozenset[str]:
    """By the names of `injections.needs`."""
    found = {"disk", "freeze", "launch", "links"}
    if shutil.which("nft"):
        found |= {"names", "nft"}
    if machine.kubelet():
        found |= {"kubelet", "nodes"}
    if os.path.isdir("/sys/module/sch_netem"):
        found.add("netem")
    for number, _ in enumerate(rdma.ports()):
        found |= {"rdma", *rails(number)}
    for hierarchy in cgroups.hierarchies():
        if os.access(hierarchy.mount, os.W_OK):
            found |= {f"cgroup.{_LIMITS[name]}" for name in hierarchy.controllers if name in _LIMITS}
    return frozenset(found)
