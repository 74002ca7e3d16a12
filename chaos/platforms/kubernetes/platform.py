"""The Kubernetes platform: a job's members as pods of a cluster, for as long as a context is open.

    async with KubernetesPlatform.reach(options).deploy(deployment, emit) as cluster: ...

Leaves in the run's folder `members/<member>/<life>.log`. Leaves nothing in the cluster; what a killed runner left there
is removed by the next run in the namespace, or by `chaos kubernetes clean`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio

from chaos.model.errors import BadInput
from chaos.model.ports import Cluster, Deployment, Emit, PlatformLost
from chaos.model.topology import CONTROL_NODE, Placement, Topology
from chaos.platforms.kubernetes import objects, preflight, sweep
from chaos.platforms.kubernetes.client import Kube, KubeError, Object, connect
from chaos.platforms.kubernetes.clocks import micro_time
from chaos.platforms.kubernetes.cluster import KubernetesCluster
from chaos.platforms.kubernetes.disturb import Start
from chaos.platforms.kubernetes.objects import LEASE_TTL_S, Names
from chaos.platforms.kubernetes.options import Options
from chaos.platforms.kubernetes.orders import Orders

RENEWALS_PER_TTL = 3
API_LOST_S = 120.0
"""Longer than any outage of the API server that a run should live through."""


class KubernetesPlatform:
    """Implements `chaos.model.ports.Platform`; `nodes` are those that have a living agent, and what that can do."""

    name = "kubernetes"

    def __init__(self, options: Options, nodes: dict[str, frozenset[str]]) -> None:
        self._options = options
        self._agents = nodes

    @classmethod
    def reach(cls, options: Options, topology: Topology) -> KubernetesPlatform:
        """Look whether a run can begin: BadInput or MachineUnfit says what is missing, before anything starts."""
        Names.of("", options.namespace).check(placement.member for placement in topology.placements)
        nodes = anyio.run(preflight.look, connect(options.context), options.namespace)
        place(topology, sorted(nodes))
        return cls(options, nodes)

    def isolation(self) -> str:
        return "containers"

    def capabilities(self) -> frozenset[str]:
        return frozenset.intersection(*self._agents.values())

    def deploy(self, deployment: Deployment, emit: Emit) -> AbstractAsyncContextManager[Cluster]:
        return self._deploy(deployment, emit)

    @asynccontextmanager
    async def _deploy(self, deployment: Deployment, emit: Emit) -> AsyncIterator[Cluster]:
        options, kube = self._options, connect(self._options.context)
        names = Names.of(deployment.run_id, options.namespace)
        nodes = place(deployment.topology, sorted(self._agents))
        await sweep.remove_dead(kube, options.namespace)
        try:
            lease = await kube.create(names.leases, objects.lease(names, _holder(), micro_time()))
        except KubeError as error:
            raise PlatformLost(str(error)) from error
        orders = Orders(kube, names, lease, options.nics())
        plan_names = {node: planned for planned, node in nodes.items()}

        async def start(place: Placement) -> None:
            body = objects.member(names, lease, place, nodes[place.node], deployment, options)
            await kube.create(f"{names.core}/pods" if body["kind"] == "Pod" else names.sets, body)

        cluster = KubernetesCluster(kube, names, deployment, emit, orders, plan_names, start)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_renew, kube, names)
                tasks.start_soon(cluster.serve)
                await _create(kube, names, lease, deployment, options, start)
                yield cluster
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await sweep.remove(kube, names)


async def _create(
    kube: Kube, names: Names, lease: Object, deployment: Deployment, options: Options, start: Start
) -> None:
    try:
        await kube.create(f"{names.core}/configmaps", objects.config(names, lease, deployment, options))
        await kube.create(f"{names.core}/services", objects.service(names, lease))
        for one in deployment.topology.placements:
            if not deployment.workload.roles[one.role].on_demand:
                await start(one)
    except KubeError as error:
        raise PlatformLost(str(error)) from error


def place(topology: Topology, available: list[str]) -> dict[str, str]:
    """A node of the cluster for each of the plan's; the control plane of the job gets the last one, for itself."""
    planned = sorted(topology.nodes(), key=lambda node: node == CONTROL_NODE)
    if len(planned) > len(available):
        raise BadInput(
            f"the plan has {len(planned)} nodes, one of them for lighthouse and controller; the cluster has "
            f"{len(available)} with an agent; type --set topology.nodes={max(1, len(available) - 1)}"
        )
    return dict(zip(planned, available, strict=False))


async def _renew(kube: Kube, names: Names) -> None:
    """Keep the run's Lease for as long as this runs. PlatformLost when it was taken away, or the API server is."""
    renewed_s = time.monotonic()
    while True:
        try:
            await kube.merge(f"{names.leases}/{names.run}", {"spec": {"renewTime": micro_time()}})
            renewed_s = time.monotonic()
        except KubeError as error:
            if error.status == 404:
                raise PlatformLost(f"the run's Lease {names.run} was deleted: somebody ended the run") from error
            if time.monotonic() - renewed_s > API_LOST_S:
                raise PlatformLost(f"no renewal for {API_LOST_S:g} s: {error}") from error
        await anyio.sleep(LEASE_TTL_S / RENEWALS_PER_TTL)


def _holder() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"
