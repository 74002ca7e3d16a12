"""The Kubernetes platform: a job's members as pods of a cluster, for as long as a context is open.

    async with KubernetesPlatform.reach(options, workload, topology).deploy(deployment, emit) as cluster: ...

Leaves in the run's folder `members/<member>/<life>.log`. Leaves nothing in the cluster; what a killed runner left there
is removed by the next run in the namespace, or by `chaos clean`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import anyio

from chaos.model.errors import BadInput, MachineUnfit
from chaos.model.ports import Cluster, Deployment, Emit, PlatformLost, RunAborted
from chaos.model.topology import CONTROL_NODE, Topology
from chaos.model.workload import Workload
from chaos.platforms.kubernetes import objects, preflight, sweep
from chaos.platforms.kubernetes.arrival import Arrivals
from chaos.platforms.kubernetes.client import Kube, KubeError, Object, connect
from chaos.platforms.kubernetes.clocks import micro_time
from chaos.platforms.kubernetes.cluster import KubernetesCluster
from chaos.platforms.kubernetes.disturb import Start
from chaos.platforms.kubernetes.layout import Keeper, Keepers, Layout
from chaos.platforms.kubernetes.objects import ABORTED, KUEUE, LEASE_TTL_S, MESH_API, Names
from chaos.platforms.kubernetes.options import Options, Queue
from chaos.platforms.kubernetes.orders import Orders
from chaos.platforms.kubernetes.placing import Places, place, places, suited

RENEWALS_PER_TTL = 3
OF_OWN_NETWORKS = frozenset({"links", "names", "netem", "nft"})
"""What faults need of a pod that has a network of its own."""
API_LOST_S = 120.0
"""Longer than any outage of the API server that a run should live through."""


@dataclass(frozen=True)
class Found:
    """What of a cluster decides how a run is placed there: the layout to use, the nodes with a living agent and what
    that can do, the nodes that suit replicas, where in the network each is.
    """

    layout: Layout
    agents: dict[str, frozenset[str]]
    suited: frozenset[str]
    places: Places


class KubernetesPlatform:
    """Implements `chaos.model.ports.Platform`. `agents` are the nodes that have a living one, and what that can do;
    `nodes` are what the plan's nodes are in this cluster.
    """

    name = "kubernetes"

    def __init__(self, options: Options, found: Found, nodes: dict[str, str]) -> None:
        self._options = options
        self._layout = found.layout
        self._agents = found.agents
        self._places = found.places
        self._nodes = nodes

    @classmethod
    def reach(cls, options: Options, workload: Workload, topology: Topology) -> KubernetesPlatform:
        """Look whether a run can begin: BadInput or MachineUnfit says what is missing, before anything starts."""
        kube = connect(options.context)
        found = anyio.run(_look, kube, options)
        Keepers(Names.of("", "").run, workload, topology, found.layout).check(options.namespace)
        return cls(options, found, place(topology, sorted(found.agents), found.suited))

    def isolation(self) -> str:
        return "containers"

    def capabilities(self) -> frozenset[str]:
        found = frozenset.intersection(*self._agents.values())
        if self._options.replica.pod.get("hostNetwork") or self._options.job.pod.get("hostNetwork"):
            found -= OF_OWN_NETWORKS  # They would hit everybody on the node.
        return found | {"moves"} if self._layout is Layout.STATEFULSET_PER_REPLICA else found

    def deploy(self, deployment: Deployment, emit: Emit) -> AbstractAsyncContextManager[Cluster]:
        return self._deploy(deployment, emit)

    @asynccontextmanager
    async def _deploy(self, deployment: Deployment, emit: Emit) -> AsyncIterator[Cluster]:
        options, kube = self._options, connect(self._options.context)
        names = Names.of(deployment.run_id, options.namespace)
        nodes = self._nodes
        await sweep.remove_dead(kube, options.namespace)
        try:
            lease = await kube.create(names.leases, objects.lease(names, _holder(), micro_time()))
        except KubeError as error:
            raise PlatformLost(str(error)) from error
        orders = Orders(kube, names, lease, options.nics(), options.node_nics())
        keepers = Keepers(names.run, deployment.workload, deployment.topology, self._layout)
        planned = {one.member: nodes[one.node] for one in deployment.topology.placements}
        # With a queue, it is the queue that chooses the nodes of replicas.
        known = {name: node for name, node in nodes.items() if options.queue is None or name == CONTROL_NODE}
        plan_names = {node: name for name, node in known.items()}

        async def start(keeper: Keeper) -> None:
            chosen = options.queue is not None and keeper.queued
            where = [] if chosen else sorted({planned[member] for member in keeper.members})
            body = objects.keeper(names, lease, keeper, where, deployment, options)
            await kube.create(names.keepers(keeper.kind), body)

        def now_s() -> float:
            return time.monotonic() - deployment.epoch_mono_s

        arrivals = Arrivals(kube, names, keepers, options.queue, emit, now_s)
        cluster = KubernetesCluster(
            kube, names, deployment, keepers, emit, orders, plan_names, start, arrivals, self._places
        )
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_renew, kube, names)
                tasks.start_soon(cluster.serve)
                config = objects.config(names, lease, deployment, keepers, options)
                await _create(kube, names, lease, config, keepers, start)
                yield cluster
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await sweep.remove(kube, names)


async def _create(kube: Kube, names: Names, lease: Object, config: Object, keepers: Keepers, start: Start) -> None:
    try:
        await kube.create(f"{names.core}/configmaps", config)
        await kube.create(f"{names.core}/services", objects.service(names, lease))
        for keeper in keepers:
            if not keeper.on_demand:
                await start(keeper)
    except KubeError as error:
        raise PlatformLost(str(error)) from error


async def _look(kube: Kube, options: Options) -> Found:
    """BadInput and MachineUnfit say what is missing."""
    agents = await preflight.look(kube, options.namespace)
    try:
        layout = await _layout(kube, options.layout)
        await _check_queue(kube, options.queue, layout)
        nodes = (await kube.get("/api/v1/nodes"))["items"]
        return Found(layout, agents, suited(nodes, options), places(nodes, options.levels))
    except KubeError as error:
        raise MachineUnfit(f"the cluster cannot be used: {error}") from error


async def _layout(kube: Kube, wanted: Layout | None) -> Layout:
    """As wanted, or what this cluster has. BadInput when it knows no MonarchMesh."""
    if wanted is not None and not wanted.meshes:
        return wanted
    try:
        await kube.get(f"/apis/{MESH_API}")
    except KubeError as error:
        if error.status != 404:
            raise
        if wanted is None:
            return Layout.STATEFULSET_PER_REPLICA
        raise BadInput(
            f"layout {wanted.value} needs the Monarch operator: this cluster knows no MonarchMesh of {MESH_API}; "
            f"install it, or type layout: {Layout.STATEFULSET.value} in the platform file"
        ) from None
    return wanted or Layout.MESH


async def _check_queue(kube: Kube, queue: Queue | None, layout: Layout) -> None:
    if queue is None:
        return
    if queue.pod_group and layout.shared:
        raise BadInput(f"layout {layout.value} is admitted as a whole already; remove queue.pod_group")
    try:
        await kube.get(f"/apis/{KUEUE}")
    except KubeError as error:
        if error.status != 404:
            raise
        raise BadInput(f"queue {queue.name}: this cluster has no Kueue; install it, or remove queue") from None


async def _renew(kube: Kube, names: Names) -> None:
    """Keep the run's Lease for as long as this runs. RunAborted when somebody wants the run to end, PlatformLost when
    the API server is away.

    Each renewal is asked for in its time, whether or not the one before was answered: one slow answer loses nothing.
    """
    renewed_s = time.monotonic()

    async def renew() -> None:
        nonlocal renewed_s
        try:
            lease = await kube.merge(f"{names.leases}/{names.run}", {"spec": {"renewTime": micro_time()}})
            renewed_s = time.monotonic()
        except KubeError as error:
            if error.status == 404:
                raise RunAborted(f"somebody deleted the run's Lease {names.run}") from error
            if time.monotonic() - renewed_s > API_LOST_S:
                raise PlatformLost(f"no renewal for {API_LOST_S:g} s: {error}") from error
        else:
            if ABORTED in lease["metadata"].get("annotations", {}):
                raise RunAborted("somebody typed: chaos abort")

    async with anyio.create_task_group() as tasks:
        while True:
            tasks.start_soon(renew)
            await anyio.sleep(LEASE_TTL_S / RENEWALS_PER_TTL)


def _holder() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"
