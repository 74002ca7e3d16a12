"""Disturbing a cluster: each injection of the closed set, by the agents of the nodes, or by the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial

import anyio

from chaos.model.injections import (
    Delete,
    Drain,
    Drop,
    Evict,
    FreezeKubelet,
    HeldInjection,
    Launch,
    LinkDown,
    NodeDown,
    NoNames,
    OneShot,
    Proof,
    Signal,
)
from chaos.model.ports import Hold, InjectionRefused
from chaos.model.topology import CONTROL_NODE
from chaos.platforms.kubernetes.client import Kube, KubeError
from chaos.platforms.kubernetes.layout import Keeper, Keepers, Kind
from chaos.platforms.kubernetes.lives import Life, Lives
from chaos.platforms.kubernetes.logs import Pod
from chaos.platforms.kubernetes.nodes import Nodes, each
from chaos.platforms.kubernetes.objects import Names, affinity
from chaos.platforms.kubernetes.orders import Orders

READ_S = 10.0
"""For the rest of an ended pod's log."""
DRAIN_GRACE_S = 5.0
LAUNCH_S = 60.0
"""For a member on demand to be started and to say that its trainer runs."""
LOOK_S = 0.02
DNS_PORT = 53

Start = Callable[[Keeper], Awaitable[None]]
"""Makes what keeps members alive."""


class Disturbances:
    """What can be done to the members of one cluster. `nodes` are the plan's names of the cluster's nodes."""

    def __init__(
        self,
        kube: Kube,
        names: Names,
        keepers: Keepers,
        orders: Orders,
        lives: Lives,
        pods: dict[str, Pod],
        nodes: dict[str, str],
        start: Start,
    ) -> None:
        self._kube = kube
        self._names = names
        self._keepers = keepers
        self._orders = orders
        self._lives = lives
        self._pods = pods
        self._nodes = nodes
        self._whole = Nodes(kube, names, orders, lives, pods, nodes)
        self._start = start

    async def inject(self, injection: OneShot) -> Proof:
        life = self._lives.alive(injection.member)
        pod = self._pods[life.uid]
        match injection:
            case Delete():
                evidence = await self._orders.once(injection, self._orders.of(life))
                with anyio.move_on_after(READ_S):
                    await pod.log.killed()
                await self.replace(pod)
            case Evict(grace_s=grace_s):
                evidence = await self._orders.once(
                    injection, self._orders.of(life), partial(self._evict, life, grace_s)
                )
            case Signal():
                evidence = await self._orders.once(injection, self._orders.of(life))
        return Proof(life.member, life.incarnation, evidence)

    def hold(self, injection: HeldInjection, for_s: float) -> AbstractAsyncContextManager[Hold]:
        match injection:
            case Drain():
                return self._drain(injection.target)
            case Launch():
                return self._launch(injection.target)
            case NodeDown():
                return self._whole.down(injection.target)
            case FreezeKubelet():
                return self._whole.freeze_kubelet(injection)
            case LinkDown() if injection.target in self._whole:
                return self._whole.link_down(injection, for_s)
            case _ if injection.target in self._whole:
                return self._whole.together(injection)
            case NoNames(names=()):
                injection = Drop(injection.target, ports=(DNS_PORT,))
            case NoNames():
                raise InjectionRefused("a pod asks one name server for every name: all of them fail, or none")
        asked = self._orders.of(self._lives.alive(injection.target))
        return self._orders.hold(injection, asked, self._lives.addresses())

    @asynccontextmanager
    async def _drain(self, node: str) -> AsyncIterator[Hold]:
        """This job's members leave the node; that others may come to it is not this job's affair."""
        leaving = [life for life in self._lives.values() if self._nodes.get(life.node) == node]
        others = [name for name, planned in self._nodes.items() if planned not in (node, CONTROL_NODE)]
        if not others:
            raise InjectionRefused(f"{node} is the only node for replicas: nothing to drain it to")
        for life in leaving:
            await self._move(life.member, others)
        held: Hold | None = None
        try:
            await each(leaving, self._leave)
            gone = ", ".join(sorted(life.member for life in leaving)) or "no members"
            held = Hold(node, Proof(node, 0, f"{gone} have left {node}"))
            yield held
        finally:
            with anyio.CancelScope(shield=True):
                for life in leaving:
                    await self._move(life.member, [life.node])
                if held is not None:
                    held.reverted = Proof(node, 0, f"{node} takes members again")

    async def _leave(self, life: Life) -> None:
        await self.inject(Evict(life.member, DRAIN_GRACE_S))

    async def _move(self, member: str, nodes: list[str]) -> None:
        """Where its next pod goes, if there will be one."""
        keeper = self._keepers.of(member)
        if keeper.kind is Kind.POD:
            return
        template = {"spec": {"template": {"spec": {"affinity": affinity(nodes)}}}}
        try:
            await self._kube.merge(f"{self._names.sets}/{keeper.name}", template)
        except KubeError as error:
            raise InjectionRefused(str(error)) from error

    @asynccontextmanager
    async def _launch(self, member: str) -> AsyncIterator[Hold]:
        """A bare pod, for one life."""
        held: Hold | None = None
        try:
            await self._start(self._keepers.of(member))
            with anyio.move_on_after(LAUNCH_S):
                while member not in self._lives or self._lives[member].trainer is None:
                    await anyio.sleep(LOOK_S)
            life = self._lives.alive(member)
            if life.trainer is None:
                raise InjectionRefused(f"no trainer came to run in {member}; see members/{member}")
            held = Hold(member, Proof(member, life.incarnation, f"{member} runs in pod {life.uid}, and so its trainer"))
            yield held
        except KubeError as error:
            raise InjectionRefused(str(error)) from error
        finally:
            with anyio.CancelScope(shield=True):
                await self._end_launched(member, held)

    async def _end_launched(self, member: str, held: Hold | None) -> None:
        try:
            evidence = f"{member} had ended by itself"
            if member in self._lives:
                evidence = (await self.inject(Delete(member))).evidence
            if held is not None:
                held.reverted = Proof(member, held.proof.incarnation, evidence)
            await self._kube.delete(f"{self._names.core}/pods/{self._keepers.pod(member)}")
        except (InjectionRefused, KubeError) as error:
            if held is not None:
                held.trouble = str(error)

    async def _evict(self, life: Life, grace_s: float) -> None:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": life.pod, "namespace": self._names.namespace},
            "deleteOptions": {"gracePeriodSeconds": max(1, round(grace_s)), "preconditions": {"uid": life.uid}},
        }
        try:
            await self._kube.create(f"{self._names.core}/pods/{life.pod}/eviction", eviction)
        except KubeError as error:
            raise InjectionRefused(str(error)) from error

    async def replace(self, pod: Pod) -> None:
        """Take the object of a pod away, so that its keeper makes another one, with another address."""
        if self._keepers.of(pod.member).kind is Kind.POD or pod.replaced:
            return
        pod.replaced = True
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        with suppress(KubeError):  # Someone else's doing then: it is gone already, or another one.
            await self._kube.delete(f"{self._names.core}/pods/{pod.name}", options)
