"""Asks the agents of the nodes for injections, by custom resources, and hands on what they prove.

One `Injection` object per injection. The node's agent writes into its status that it is in force, or why not; deleting
the object gives it back, and the object goes once that is proven. Agents hold it only while the run's Lease is renewed.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec

from chaos.model.injections import Drop, Held, HeldInjection, Injection, OneShot, Proof
from chaos.model.ports import Hold, InjectionRefused
from chaos.platforms.kubernetes.background import background
from chaos.platforms.kubernetes.client import Kube, KubeError, Object
from chaos.platforms.kubernetes.lives import Life
from chaos.platforms.kubernetes.objects import Names, owned
from chaos.platforms.kubernetes.order import API_VERSION, FINALIZER, Spec, State, Status, Target

AGENT_S = 10.0
"""For a node's agent to act, or to come back and give back what its predecessor held."""


async def _nothing() -> None:
    """The agent does it all."""


class Asked(msgspec.Struct, frozen=True):
    """Of whom something is asked, on which node; `alone_s` and `again` as in `Spec`."""

    node: str
    target: Target
    alone_s: float = 0.0
    again: bool = False


class Orders:
    """The runner's hand on the agents of one run. `owner` is the run's Lease; interfaces by role are those of pods, and
    of nodes as far as they are known.
    """

    def __init__(
        self, kube: Kube, names: Names, owner: Object, nics: dict[str, str], node_nics: dict[str, str]
    ) -> None:
        self.node_nics = node_nics
        self._kube = kube
        self._names = names
        self._owner = owner
        self._nics = nics
        self._numbers = itertools.count(1)
        self._statuses: dict[str, Status] = {}
        self._gone: set[str] = set()
        self._changed = anyio.Event()

    async def follow(self) -> None:
        """Learn what the agents say, until cancelled."""
        query = {"labelSelector": self._names.selector}
        await self._kube.follow(self._names.injections, self._seen, self._ended, query)

    def of(self, life: Life) -> Asked:
        """What lives one life."""
        pids = life.entered.pid, life.trainer
        return Asked(life.node, Target(life.member, self._nics, life.incarnation, life.pod, life.uid, *pids))

    def node(self, name: str, node: str) -> Asked:
        """A node itself, which the plan calls `name`."""
        return Asked(node, Target(name, self.node_nics))

    async def once(self, injection: OneShot, asked: Asked, act: Callable[[], Awaitable[None]] = _nothing) -> str:
        """Have it done: the evidence. `act` is the caller's own part, for which the agent then waits."""
        name = await self._create(injection, asked, {})
        try:
            if (await self._answer(name, State.ASKED)).state is State.READY:
                await act()
                await self._answer(name, State.READY, AGENT_S + getattr(injection, "grace_s", 0.0))
            return self._status(name).evidence
        finally:
            with anyio.CancelScope(shield=True), suppress(KubeError):  # It is removed with the run at the latest.
                await self._kube.delete(f"{self._names.injections}/{name}")

    @asynccontextmanager
    async def hold(
        self,
        injection: HeldInjection,
        asked: Asked,
        addresses: dict[str, tuple[str, ...]] | None = None,
        see: Callable[[], Awaitable[str]] | None = None,
    ) -> AsyncIterator[Hold]:
        """Keep an injection. `addresses` are those of every member, by name. `see` proves what its agent cannot."""
        peers = injection.peers if isinstance(injection, Drop) else ()
        name = await self._create(injection, asked, {peer: (addresses or {}).get(peer, ()) for peer in peers})
        held: Hold | None = None
        try:
            status = await self._answer(name, State.ASKED)
            evidence = await see() if see is not None and status.state is State.READY else status.evidence
            held = Hold(status.order or name, Proof(asked.target.member, asked.target.incarnation, evidence))
            async with background() as tasks:
                tasks.start_soon(self._watch, name, held)
                yield held
        finally:
            with anyio.CancelScope(shield=True):
                await self._release(name, asked, held)

    async def _create(self, injection: Injection, asked: Asked, peers: dict[str, tuple[str, ...]]) -> str:
        name = f"{self._names.run}-{next(self._numbers)}"
        spec = Spec(asked.node, self._names.run, asked.target, injection, peers, asked.alone_s, asked.again)
        body = owned(self._names, self._owner, "Injection", API_VERSION, name)
        body["metadata"]["finalizers"] = [FINALIZER] if isinstance(injection, Held) else []
        try:
            await self._kube.create(self._names.injections, {**body, "spec": msgspec.to_builtins(spec)})
        except KubeError as error:
            raise InjectionRefused(str(error)) from error
        return name

    async def _answer(self, name: str, before: State, within_s: float = AGENT_S) -> Status:
        """What the agent says after `before`; InjectionRefused when it refuses, or says nothing in time."""
        with anyio.move_on_after(within_s) as waiting:
            while self._status(name).state is before:
                await self._changed.wait()
        if waiting.cancelled_caught:
            raise InjectionRefused(f"the agent of the node did not answer within {within_s:g} s")
        status = self._status(name)
        if status.state not in (State.READY, State.IN_FORCE):
            raise InjectionRefused(status.reason)
        return status

    async def _watch(self, name: str, held: Hold) -> None:
        while not ((status := self._status(name)).reason or status.state is State.TARGET_GONE):
            await self._changed.wait()
        held.trouble, held.target_gone = status.reason, status.state is State.TARGET_GONE

    async def _release(self, name: str, asked: Asked, held: Hold | None) -> None:
        """Give it back, and get the proof; from the agent's successor if need be."""
        within_s = AGENT_S + asked.alone_s
        why = f"the agent of the node did not prove the end within {within_s:g} s"
        try:
            await self._kube.delete(f"{self._names.injections}/{name}")
            with anyio.move_on_after(within_s):
                while name not in self._gone and self._status(name).state is not State.REVERTED:
                    await self._changed.wait()
        except KubeError as error:
            why = str(error)
        if held is None:
            return
        status = self._status(name)
        if status.state in (State.REVERTED, State.TARGET_GONE):
            held.reverted = Proof(asked.target.member, asked.target.incarnation, status.evidence)
        else:
            held.trouble = held.trouble or status.reason or why

    def _status(self, name: str) -> Status:
        return self._statuses.get(name, Status())

    def _seen(self, item: Object) -> None:
        self._statuses[item["metadata"]["name"]] = msgspec.convert(item.get("status", {}), Status)
        self._wake()

    def _ended(self, item: Object) -> None:
        self._gone.add(item["metadata"]["name"])
        self._seen(item)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
