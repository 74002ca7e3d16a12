"""Disturbing a local cluster: each injection of the closed set, by signals, by the host, or by the injector."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress

import anyio

from chaos.model.injections import (
    Delete,
    Drain,
    Evict,
    FaultPoint,
    HeldInjection,
    Launch,
    LinkDown,
    NodeDown,
    NoNames,
    OneShot,
    Process,
    Proof,
    Signal,
)
from chaos.model.ports import Hold, InjectionRefused
from chaos.platforms import faultpoints
from chaos.platforms.local import owner
from chaos.platforms.local.commands import Commands
from chaos.platforms.local.holds import Holds
from chaos.platforms.local.lives import Life, Lives, pid_of, watch

GONE_S = 5.0
DRAIN_GRACE_S = 5.0
LAUNCH_S = 120.0
"""For a member on demand to say that its trainer runs."""
LOOK_S = 0.02


class Disturbances:
    """What can be done to the members of one cluster. `separate`: pods are namespaces, not plain processes."""

    def __init__(self, lives: Lives, commands: Commands, holds: Holds, separate: bool) -> None:
        self._lives = lives
        self._commands = commands
        self._holds = holds
        self._separate = separate

    async def inject(self, injection: OneShot) -> Proof:
        match injection:
            case Delete(member):
                return await self._delete(self._lives.alive(member))
            case Evict(member, grace_s):
                return await self._evict(self._lives.alive(member), grace_s)
            case Signal(member, process, number, grace_s):
                return await self._signal(self._lives.alive(member), process, number, grace_s)

    def hold(self, injection: HeldInjection) -> AbstractAsyncContextManager[Hold]:
        target = injection.target
        match injection:
            case FaultPoint():
                life = self._lives.alive(target)
                return faultpoints.hold(injection, life.incarnation, life.events.parent / "scratch", life.exited)
            case NodeDown():
                return self._node_down(target)
            case Drain():
                return self._drain(target)
            case Launch():
                return self._launch(target)
            case NoNames():
                return self._no_names(self._lives.alive(target), injection.names)
            case _:
                return self._holds.hold(injection, self._lives.site(target), self._lives.addresses)

    @asynccontextmanager
    async def _node_down(self, node: str) -> AsyncIterator[Hold]:
        await self._commands.send("close", node=node, move=False)
        held: Hold | None = None
        downs: list[Hold] = []
        try:
            async with AsyncExitStack() as links:
                on_node = self._lives.on(node)
                site = self._lives.site(node)
                for interface in site.nics:
                    downs.append(await links.enter_async_context(self._holds.hold(LinkDown(node, interface), site)))
                for life in on_node:
                    await self._delete(life)
                held = Hold(node, Proof(node, 0, f"{_named(on_node)} are gone, and the links of {node} are down"))
                tasks = await links.enter_async_context(anyio.create_task_group())
                tasks.start_soon(_watch_parts, held, downs)
                try:
                    yield held
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._commands.send("open", node=node)
                if held is not None:
                    held.trouble = _trouble(downs)
                if held is not None and all(down.reverted for down in downs):
                    held.reverted = Proof(node, 0, f"the links of {node} are up, and its members start again")

    @asynccontextmanager
    async def _drain(self, node: str) -> AsyncIterator[Hold]:
        await self._commands.send("close", node=node, move=True)
        held: Hold | None = None
        try:
            on_node = self._lives.on(node)
            async with anyio.create_task_group() as evictions:
                for life in on_node:
                    evictions.start_soon(self._evict, life, DRAIN_GRACE_S)
            held = Hold(node, Proof(node, 0, f"{_named(on_node)} have left {node}"))
            yield held
        finally:
            with anyio.CancelScope(shield=True):
                await self._commands.send("open", node=node)
                if held is not None:
                    held.reverted = Proof(node, 0, f"{node} takes members again")

    @asynccontextmanager
    async def _launch(self, member: str) -> AsyncIterator[Hold]:
        await self._commands.send("launch", member=member)
        life = self._lives[member]
        held: Hold | None = None
        try:
            with anyio.move_on_after(LAUNCH_S):
                while life.trainer is None and not life.exited.is_set():
                    await anyio.sleep(LOOK_S)
            if life.trainer is None:
                raise InjectionRefused(f"no trainer came to run in {member}; see members/{member}")
            held = Hold(
                member, Proof(member, life.incarnation, f"{member} runs in process {life.pid}, and so its trainer")
            )
            yield held
        finally:
            with anyio.CancelScope(shield=True):
                if not life.exited.is_set():
                    await self._delete(life)
                with anyio.move_on_after(GONE_S):
                    await life.exited.wait()
                    if held is not None:
                        held.reverted = Proof(member, life.incarnation, f"no process of {member} is left")

    @asynccontextmanager
    async def _no_names(self, life: Life, names: tuple[str, ...]) -> AsyncIterator[Hold]:
        if not self._separate:
            raise InjectionRefused(f"{life.member} has no names of its own: plain processes share the machine's")
        which = {"member": life.member, "names": list(names)}
        await self._commands.send("names", wanted="lost", **which)
        lost = f"no name of {', '.join(names) or 'another member'} resolves in {life.member}"
        held = Hold(life.member, Proof(life.member, life.incarnation, lost))
        try:
            yield held
        finally:
            with anyio.CancelScope(shield=True):
                evidence = f"names resolve again in {life.member}"
                if life.exited.is_set():
                    evidence = f"{life.member} is gone: nothing to give back"
                else:
                    await self._commands.send("names", wanted="back", **which)
                held.reverted = Proof(life.member, life.incarnation, evidence)

    async def _delete(self, life: Life) -> Proof:
        with watch(life.pidfd) as gone:
            await self._commands.send("delete", member=life.member, incarnation=life.incarnation)
            with anyio.move_on_after(GONE_S) as waited:
                await anyio.wait_readable(gone)
                if not self._separate:  # The kernel does not end the children; the host does, then says so.
                    await life.exited.wait()
        if waited.cancelled_caught:
            raise InjectionRefused(f"{life.member} outlived SIGKILL by {GONE_S} s")
        what = "its pid namespace" if self._separate else "all its processes"
        return Proof(life.member, life.incarnation, f"main process {life.pid} is gone, with {what}")

    async def _evict(self, life: Life, grace_s: float) -> Proof:
        with watch(life.pidfd) as gone, suppress(ProcessLookupError):
            signal.pidfd_send_signal(life.pidfd, signal.SIGTERM)
            with anyio.move_on_after(grace_s) as waited:
                await anyio.wait_readable(gone)
            if waited.cancelled_caught:
                return await self._delete(life)
        return Proof(life.member, life.incarnation, f"main process {life.pid} ended within its grace of {grace_s:g} s")

    async def _signal(self, life: Life, process: Process, number: int, grace_s: float) -> Proof:
        target = life.pidfd if process is Process.MAIN else life.trainer
        if target is None:
            raise InjectionRefused(f"{life.member} has told of no trainer in its life {life.incarnation}")
        name = signal.Signals(number).name
        what = f"{process.value} process of {life.member}"
        with watch(target) as gone:
            pid = pid_of(target)
            if pid is None:
                raise InjectionRefused(f"the {what} is gone already")
            try:
                signal.pidfd_send_signal(target, number)
            except OSError as error:
                raise InjectionRefused(f"{name} to the {what}: {error.strerror}") from error
            with anyio.move_on_after(grace_s) as waited:
                if number in (signal.SIGSTOP, signal.SIGCONT):
                    return await _see_stopped(life, pid, what, number == signal.SIGSTOP)
                await anyio.wait_readable(gone)
        if waited.cancelled_caught:
            raise InjectionRefused(f"{name} was sent but not seen in force within {grace_s:g} s on the {what}")
        return Proof(life.member, life.incarnation, f"{process.value} process {pid} is gone")


async def _watch_parts(held: Hold, parts: list[Hold]) -> None:
    """What befalls a part befalls the whole."""
    while not held.trouble:
        await anyio.sleep(LOOK_S)
        held.trouble = _trouble(parts)


def _trouble(parts: list[Hold]) -> str:
    return "; ".join(part.trouble for part in parts if part.trouble)


async def _see_stopped(life: Life, pid: int, what: str, stopped: bool) -> Proof:
    state = "stopped" if stopped else "running again"
    while True:
        stat = owner.stat(pid)
        if stat is None:
            raise InjectionRefused(f"the {what} ended")
        if (stat[0] in "Tt") is stopped:
            return Proof(life.member, life.incarnation, f"process {pid} is {state}")
        await anyio.sleep(0.001)


def _named(lives: list[Life]) -> str:
    return ", ".join(sorted(life.member for life in lives)) or "no members"
