"""What is done to a whole node: to its kubelet, to its own interfaces, or to every member of this job that is on it.

Other people's pods on the node are left alone as far as that can be: a node that is `down` is dead to Kubernetes and to
this job, and what it has of CPU, memory or bandwidth is shared out among this job's members.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import anyio
import msgspec

from chaos.model.injections import (
    CpuLimit,
    Delete,
    FreezeKubelet,
    HeldInjection,
    Interface,
    IoLimit,
    LinkDown,
    MemoryLimit,
    ProcessLimit,
    Proof,
    Shape,
)
from chaos.model.ports import Hold, InjectionRefused
from chaos.platforms.kubernetes.background import background
from chaos.platforms.kubernetes.client import Kube
from chaos.platforms.kubernetes.lives import Life, Lives
from chaos.platforms.kubernetes.logs import Pod
from chaos.platforms.kubernetes.objects import Names
from chaos.platforms.kubernetes.orders import Asked, Orders

ALONE_S_MAX = 15.0
"""The longest that an agent which cannot be reached holds anything: the ceiling of every lease."""
SILENT_S = 1.0
"""A kubelet that does not answer the API server for so long is cut off."""
SEEN_S = 10.0
LOOK_S = 0.02


class Nodes:
    """The nodes of one cluster; `planned` is what the plan calls them."""

    def __init__(
        self,
        kube: Kube,
        names: Names,
        orders: Orders,
        lives: Lives,
        pods: dict[str, Pod],
        planned: dict[str, str],
    ) -> None:
        self._kube = kube
        self._names = names
        self._orders = orders
        self._lives = lives
        self._pods = pods
        self._planned = planned
        self._nics = orders.node_nics

    def __contains__(self, name: str) -> bool:
        return name in self._planned.values()

    def on(self, name: str) -> list[Life]:
        """The lives on a node."""
        return [life for life in self._lives.values() if self._planned.get(life.node) == name]

    def freeze_kubelet(self, injection: FreezeKubelet) -> AbstractAsyncContextManager[Hold]:
        return self._orders.hold(injection, self._asked(injection.target))

    @asynccontextmanager
    async def link_down(self, injection: LinkDown, for_s: float) -> AsyncIterator[Hold]:
        """Where that cuts off the node's agent, it holds alone, and that it does is seen from outside."""
        name, role = injection.target, injection.interface.value
        if role not in self._nics:
            raise InjectionRefused(
                f"nobody knows which interface of {name} is for {role}; type in the platform file: "
                f"node_interfaces: {{{role}: NAME}}"
            )
        asked = self._asked(name)
        if self._nics[role] != self._nics.get(Interface.CONTROL.value):
            async with self._orders.hold(injection, asked) as hold:
                yield hold
            return
        if for_s > ALONE_S_MAX:
            raise InjectionRefused(
                f"without its control interface {name} cannot be reached: that is held for {ALONE_S_MAX:g} s at most, "
                f"not for {for_s:g}; type for_s: {ALONE_S_MAX:g}"
            )
        pods = [pod.name for pod in self._pods.values() if pod.node == asked.node and pod.life is not None]
        if not pods:
            raise InjectionRefused(f"no member lives on {name}, by which it could be seen cut off")

        async def cut_off() -> str:
            with anyio.fail_after(SEEN_S):
                while not await self._kube.silent(f"{self._names.core}/pods/{pods[0]}/log", SILENT_S, tailLines=1):
                    await anyio.sleep(LOOK_S)
            return f"{self._nics[role]} of {asked.node} is down: its kubelet does not answer the API server"

        alone = msgspec.structs.replace(asked, alone_s=min(for_s + SILENT_S, ALONE_S_MAX))
        async with self._orders.hold(injection, alone, see=cut_off) as hold:
            yield hold

    @asynccontextmanager
    async def down(self, name: str) -> AsyncIterator[Hold]:
        """No packet leaves its members before they die, and their kubelet stands still for as long as they are dead."""
        lives = self.on(name)
        links = [LinkDown(life.member, interface) for life in lives for interface in Interface]
        async with self._all(name, [*links, FreezeKubelet(name)]) as hold:
            await each(lives, self._end)
            hold.proof = Proof(name, 0, f"{_named(lives)} are gone; {hold.proof.evidence}")
            yield hold

    async def _end(self, life: Life) -> None:
        await self._orders.once(Delete(life.member), msgspec.structs.replace(self._orders.of(life), again=True))
        with anyio.move_on_after(SEEN_S):
            await self._pods[life.uid].log.killed(unread=True)

    @asynccontextmanager
    async def together(self, injection: HeldInjection) -> AsyncIterator[Hold]:
        """Done to the members on it, each of which gets its part."""
        name = injection.target
        lives = self.on(name)
        if not lives:
            raise InjectionRefused(f"no member lives on {name}")
        async with self._all(name, [part(injection, life.member, len(lives)) for life in lives]) as hold:
            yield hold

    @asynccontextmanager
    async def _all(self, name: str, injections: Iterable[HeldInjection]) -> AsyncIterator[Hold]:
        """One hold of many: what befalls a part befalls the whole."""
        parts: list[Hold] = []
        held: Hold | None = None
        try:
            async with AsyncExitStack() as stack:
                for one in injections:
                    asked = self._asked(name) if one.target == name else self._orders.of(self._lives.alive(one.target))
                    parts.append(await stack.enter_async_context(self._orders.hold(one, asked)))
                held = Hold(name, Proof(name, 0, "; ".join(part.proof.evidence for part in parts)))
                async with background() as tasks:
                    tasks.start_soon(_watch, held, parts)
                    yield held
        finally:
            if held is not None:
                held.trouble = _trouble(parts)
                proofs = [part.reverted.evidence for part in parts if part.reverted is not None]
                if len(proofs) == len(parts):
                    held.reverted = Proof(name, 0, "; ".join(proofs))

    def _asked(self, name: str) -> Asked:
        (node,) = (node for node, planned in self._planned.items() if planned == name)
        return self._orders.node(name, node)


def part(injection: HeldInjection, member: str, of: int) -> HeldInjection:
    """What one of several members gets of what is done to their node: what they share is split evenly."""
    changes: dict[str, object] = {"target": member}
    match injection:
        case CpuLimit(cores=cores):
            changes["cores"] = max(cores / of, 0.01)
        case MemoryLimit(limit_bytes=int(limit)):
            changes["limit_bytes"] = limit // of
        case IoLimit(bytes_s=rate):
            changes["bytes_s"] = rate // of
        case ProcessLimit(more=more):
            changes["more"] = more // of
        case Shape(rate_bit_s=int(rate)):
            changes["rate_bit_s"] = rate // of
    return msgspec.structs.replace(injection, **changes)


async def each(lives: list[Life], act: Callable[[Life], Awaitable[None]]) -> None:
    """For all of them at once. InjectionRefused when one of them is."""
    refusals: list[InjectionRefused] = []

    async def try_it(life: Life) -> None:
        try:
            await act(life)
        except InjectionRefused as refusal:
            refusals.append(refusal)

    async with anyio.create_task_group() as tasks:
        for life in lives:
            tasks.start_soon(try_it, life)
    if refusals:
        raise refusals[0]


async def _watch(held: Hold, parts: list[Hold]) -> None:
    while not held.trouble:
        await anyio.sleep(LOOK_S)
        held.trouble = _trouble(parts)


def _trouble(parts: list[Hold]) -> str:
    return "; ".join(part.trouble for part in parts if part.trouble)


def _named(lives: list[Life]) -> str:
    return ", ".join(sorted(life.member for life in lives)) or "no members"
