"""Carries out the `Injection` objects of this node, each in a task of its own, and keeps their statuses.

A task lives from the first sight of an object to its end: it makes the injection, says so, holds it while the run's
Lease is renewed, and once the object is deleted gives back, proves it and lets the object go. Everything of an object
that an earlier agent began was given back when this one started, and is told as lost.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import msgspec
from anyio.abc import TaskGroup

from chaos.agent import leases as held
from chaos.agent.linux.resource import Gone, NotInForce
from chaos.agent.wire import Grant
from chaos.agent.wire import State as Ending
from chaos.model.injections import Delete, Evict, FaultPoint, KernelInjection, Process, Signal
from chaos.model.ports import InjectionRefused
from chaos.platforms import faultpoints
from chaos.platforms.kubernetes.agent import machine, processes
from chaos.platforms.kubernetes.agent.pods import NodePods
from chaos.platforms.kubernetes.agent.renewals import Renewals
from chaos.platforms.kubernetes.background import background
from chaos.platforms.kubernetes.client import Kube, KubeError, Object
from chaos.platforms.kubernetes.entry import SCRATCH
from chaos.platforms.kubernetes.objects import GROUP, LEASE_TTL_S, RUN, VERSION
from chaos.platforms.kubernetes.order import FINALIZER, Spec, State, Status, Target

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
RETRY_S = 0.5
EVICTION_SLACK_S = 10.0

log = logging.getLogger(__name__)


class Impossible(Exception):
    """The injection is not made; the message says why."""


@dataclass
class Order:
    """One object, as it was last seen."""

    path: str
    name: str
    run: str
    spec: Spec
    finalizers: list[str]
    status: Status = field(default_factory=Status)
    deleted: bool = False
    changed: anyio.Event = field(default_factory=anyio.Event)

    def wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class Orders:
    """The orders to one node."""

    def __init__(self, kube: Kube, node: str, leases: held.Leases, pods: NodePods) -> None:
        self._kube = kube
        self._node = node
        self._leases = leases
        self._pods = pods
        self._orders: dict[str, Order] = {}
        self._renewals = Renewals()
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            leases = "/apis/coordination.k8s.io/v1/leases"
            self._tasks.start_soon(self._kube.follow, leases, self._renewed, self._ended, {"labelSelector": RUN})
            query = {"fieldSelector": f"spec.node={self._node}"}
            await self._kube.follow(f"/apis/{GROUP}/{VERSION}/injections", self._seen, self._gone, query)

    def _renewed(self, lease: Object) -> None:
        run = _name(lease)
        self._renewals.seen(run, lease["spec"]["renewTime"])
        for order in self._orders.values():
            if order.run == run:
                if not order.spec.alone_s:
                    self._leases.prolong(order.name)
                order.wake()

    def _ended(self, lease: Object) -> None:
        self._renewals.pop(_name(lease), None)

    def _seen(self, item: Object) -> None:
        meta = item["metadata"]
        if meta["uid"] not in self._orders:
            path = f"/apis/{GROUP}/{VERSION}/namespaces/{meta['namespace']}/injections/{meta['name']}"
            spec, misfit = _read(item["spec"])
            order = Order(path, _name(item), f"{meta['namespace']}.{spec.run}", spec, meta.get("finalizers", []))
            order.status = Status(State.REFUSED) if misfit else msgspec.convert(item.get("status", {}), Status)
            self._orders[meta["uid"]] = order
            assert self._tasks is not None
            self._tasks.start_soon(self._carry_out, meta["uid"], order, misfit)
        order = self._orders[meta["uid"]]
        order.deleted = order.deleted or "deletionTimestamp" in meta
        order.wake()

    def _gone(self, item: Object) -> None:
        if item["metadata"]["uid"] in self._orders:
            order = self._orders[item["metadata"]["uid"]]
            order.deleted, order.finalizers = True, []
            order.wake()

    async def _carry_out(self, uid: str, order: Order, misfit: str) -> None:
        try:
            if misfit:
                raise Impossible(f"this agent cannot read it: {misfit}")
            if order.status.state in (State.READY, State.IN_FORCE):
                await self._resume(order)
            elif order.status.state is State.ASKED and not order.deleted:
                await self._make(order)
        except (Impossible, InjectionRefused, NotInForce, Gone, held.Refused, OSError) as error:
            await self._say(order, Status(State.REFUSED, reason=str(error)))
        while not order.deleted:
            await order.changed.wait()
        await self._let_go(order)
        del self._orders[uid]

    async def _resume(self, order: Order) -> None:
        """An earlier agent made it and died: it was given back when this agent began."""
        evidence = "it ended with the agent that held it"
        try:
            evidence = (await self._leases.release(order.name)).evidence
        except held.Refused:
            log.info("%s was not in the ledger", order.name)
        await self._say(order, Status(State.LOST, evidence, "the agent of the node was started again"))

    async def _make(self, order: Order) -> None:
        target, injection = order.spec.target, order.spec.injection
        if not target.uid:
            await self._spare_control_plane()
        match injection:
            case Delete():
                evidence = await processes.end(self._pods, target)
                if not order.spec.again:
                    assert self._tasks is not None
                    self._tasks.start_soon(processes.keep_dead, self._pods, target)
                await self._say(order, Status(State.IN_FORCE, evidence))
            case Evict(grace_s=grace_s):
                await self._see_end(order, grace_s + EVICTION_SLACK_S)
            case Signal(process=process, signal=number):
                pid = target.pid if process is Process.MAIN else target.trainer
                if pid is None:
                    raise Impossible(f"{target.member} has told of no trainer in its life {target.incarnation}")
                await self._say(order, Status(State.IN_FORCE, await processes.send(self._pods, target, pid, number)))
            case FaultPoint():
                await self._hold_at_point(order, injection)
            case _ if isinstance(injection, KernelInjection) and order.spec.alone_s:
                await self._hold_alone(order, injection)
            case _ if isinstance(injection, KernelInjection):
                await self._hold(order, injection)
            case _:
                raise Impossible(f"{type(injection).__name__} is not made on Kubernetes yet")

    async def _spare_control_plane(self) -> None:
        """A job's plan never aims at such a node; an object made by hand may."""
        try:
            node = await self._kube.get(f"/api/v1/nodes/{self._node}")
        except KubeError as error:
            raise Impossible(f"it is not known what node {self._node} is: {error}") from error
        if CONTROL_PLANE in node["metadata"].get("labels", {}):
            raise Impossible(f"{self._node} carries the control plane of the cluster")

    async def _see_end(self, order: Order, within_s: float) -> None:
        ready = anyio.Event()

        async def tell() -> None:
            await ready.wait()
            await self._say(order, Status(State.READY))

        async with background() as tasks:
            tasks.start_soon(tell)
            evidence = await processes.see_end(self._pods, order.spec.target, ready, within_s)
        await self._say(order, Status(State.IN_FORCE, evidence))

    async def _hold(self, order: Order, injection: KernelInjection) -> None:
        """Under a lease of this machine's, renewed whenever the run's Lease is seen renewed: its time at once, and the
        proof as soon as what is under way lets it.
        """
        self._check_alive(order)
        told = self._renewals[order.run]
        reply = await self._leases.grant(self._grant(order, injection, LEASE_TTL_S), client=0)
        await self._say(order, Status(State.IN_FORCE, reply.evidence))
        while not order.deleted:
            last = self._renewals.get(order.run, told)
            if last == told:
                await order.changed.wait()
                continue
            told = last
            reply = await self._leases.renew(order.name)
            if reply.error:
                late = last.late if reply.state is Ending.EXPIRED else ""
                await self._say(order, Status(State.LOST, reply.evidence, late or reply.error))
                return

    async def _hold_alone(self, order: Order, injection: KernelInjection) -> None:
        """Where it cuts this agent off from the API server: announced, then held for the time that was asked for."""
        self._check_alive(order)
        grant = self._grant(order, injection, order.spec.alone_s)
        await self._say(order, Status(State.READY))
        in_force = (await self._leases.grant(grant, client=0)).evidence
        with anyio.move_on_after(order.spec.alone_s):
            while not order.deleted:
                await order.changed.wait()
        await self._say(order, Status(State.REVERTED, f"{await self._give_back(order)}; before, {in_force}"))

    def _grant(self, order: Order, injection: KernelInjection, ttl_s: float) -> Grant:
        target = order.spec.target
        site = self._pods.site(target, injection) if target.uid else machine.site(target)
        return Grant(order.name, ttl_s, injection, site, order.spec.peers)

    async def _hold_at_point(self, order: Order, injection: FaultPoint) -> None:
        """The trainer keeps the time of its orders; this renews them while the run's Lease is renewed."""
        self._check_alive(order)
        target = order.spec.target
        folder = Path(f"/proc/{self._pods.find(target, target.pid)}/root{SCRATCH}")
        async with faultpoints.hold(injection, target.incarnation, folder) as hold:
            await self._say(order, Status(State.IN_FORCE, hold.proof.evidence, order=hold.order))
            while not order.deleted and self._renewals.alive(order.run) and not hold.ended:
                with anyio.move_on_after(LEASE_TTL_S):
                    await order.changed.wait()
        evidence = hold.reverted.evidence if hold.reverted else ""
        if hold.target_gone:
            await self._say(order, Status(State.TARGET_GONE, evidence, order=hold.order))
        elif hold.trouble or not order.deleted:
            await self._say(order, Status(State.LOST, evidence, hold.trouble or "the run's Lease was not renewed"))
        else:
            order.status = Status(State.REVERTED, evidence, order=hold.order)

    def _check_alive(self, order: Order) -> None:
        if not self._renewals.alive(order.run):
            raise Impossible(f"the Lease of run {order.spec.run} was not seen renewed within {LEASE_TTL_S:g} s")

    async def _let_go(self, order: Order) -> None:
        """Give back what is held, say so, and let the object go once that is proven."""
        if isinstance(order.spec.injection, KernelInjection) and order.status.state in (State.IN_FORCE, State.LOST):
            state = State.REVERTED if order.status.state is State.IN_FORCE else State.LOST
            order.status = Status(state, await self._give_back(order), order.status.reason)
        if FINALIZER in order.finalizers:
            await self._say(order, order.status)
            kept = [name for name in order.finalizers if name != FINALIZER]
            await self._patch(order.path, {"metadata": {"finalizers": kept}})

    async def _give_back(self, order: Order) -> str:
        """The evidence. What cannot be proven is tried again for as long as it takes."""
        while True:
            try:
                reply = await self._leases.release(order.name)
            except held.Refused as error:
                return str(error)
            if reply.ok:
                return reply.evidence
            log.warning("%s: %s", order.name, reply.error)
            await anyio.sleep(RETRY_S)

    async def _say(self, order: Order, status: Status) -> None:
        order.status = status
        log.info("%s %s: %s%s", order.name, status.state.value, status.evidence, status.reason)
        await self._patch(f"{order.path}/status", {"status": msgspec.to_builtins(status)})

    async def _patch(self, path: str, body: Object) -> None:
        """Until the API server has taken it, or has no such object any more."""
        while True:
            try:
                await self._kube.merge(path, body)
                return
            except KubeError as error:
                if error.status == 404:
                    return
                log.warning("%s", error)
            await anyio.sleep(RETRY_S)


def _read(spec: Object) -> tuple[Spec, str]:
    """What is asked for; nothing, and why it cannot be read, where it is of another version or made by hand."""
    try:
        return msgspec.convert(spec, Spec), ""
    except msgspec.ValidationError as error:
        return Spec(spec["node"], spec["run"], Target("", {}), Delete("")), str(error)


def _name(item: Object) -> str:
    """Of an object in its namespace; also a lease's id."""
    return f"{item['metadata']['namespace']}.{item['metadata']['name']}"
