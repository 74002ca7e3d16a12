"""The runner's side of a cluster: who is alive, what they say, ending the job; `disturb` is how it is disturbed.

`serve` is the task that takes the host's messages and reads the members' event files; everything else is called by the
runner while it runs.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import AbstractAsyncContextManager, suppress
from math import inf

import anyio
import msgspec

from chaos.model.events import MemberExited, MemberStarted, TrainerStarted
from chaos.model.injections import HeldInjection, OneShot, Proof
from chaos.model.ports import Deployment, Emit, Hold, PlatformLost
from chaos.model.site import Site
from chaos.platforms.lines import Lines
from chaos.platforms.local import channel, owner
from chaos.platforms.local.commands import Commands
from chaos.platforms.local.disturb import GONE_S, Disturbances
from chaos.platforms.local.entrances import Entrances
from chaos.platforms.local.holds import Holds
from chaos.platforms.local.lives import Life, Lives, find_in_pod, pid_of

POLL_S = 0.02
READ_BYTES_MAX = 4 * 1024 * 1024
CONTROLLER_STOP_S = 30.0
MEMBERS_STOP_S = 6.0
CONTROLLER = "controller"


class LocalCluster:
    """Implements `chaos.model.ports.Cluster`."""

    def __init__(self, deployment: Deployment, emit: Emit, control: socket.socket, isolation: str) -> None:
        self.up = anyio.Event()
        self._deployment = deployment
        self._emit = emit
        self._control = control
        self._separate = isolation != "processes"
        self._entrances = Entrances(deployment.run_dir / "platform", isolation)
        self._holds = Holds(deployment.run_dir / "platform")
        self._lives = Lives(deployment.workload.members())
        self._commands = Commands(control)
        self._disturbances = Disturbances(self._lives, self._commands, self._holds, self._separate)
        self._over = anyio.Event()
        self._over_status = 0

    async def serve(self) -> None:
        """Take messages and read event files until cancelled. PlatformLost when the host is gone."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._take_messages)
            while True:
                self.read_events()
                await anyio.sleep(POLL_S)

    def read_events(self) -> None:
        """Emit what the living members have written since the last time."""
        for life in list(self._lives.values()):
            self._read(life)

    def close(self) -> None:
        self._holds.close()
        for life in self._lives.values():
            life.close()
        self._lives.clear()

    async def inject(self, injection: OneShot) -> Proof:
        return await self._disturbances.inject(injection)

    def hold(self, injection: HeldInjection, for_s: float = inf) -> AbstractAsyncContextManager[Hold]:
        return self._disturbances.hold(injection)

    async def stop(self) -> None:
        await self._commands.send("retire")
        lives = list(self._lives.values())
        controllers = [life for life in lives if self._role(life.member) == CONTROLLER]
        for some, number, within_s in (
            (controllers, signal.SIGTERM, CONTROLLER_STOP_S),
            (lives, signal.SIGTERM, MEMBERS_STOP_S),
            (lives, signal.SIGKILL, GONE_S),
        ):
            await _end(some, number, within_s)
        left = [life.member for life in lives if not life.exited.is_set()]
        if left:
            raise PlatformLost(f"{', '.join(left)} outlived SIGKILL by {GONE_S} s")

    async def wait_job_over(self) -> int:
        await self._over.wait()
        return self._over_status

    def _role(self, member: str) -> str:
        return self._deployment.workload.members()[member]

    async def _take_messages(self) -> None:
        while True:
            try:
                received = channel.receive(self._control)
            except BlockingIOError:
                await anyio.wait_readable(self._control)
                continue
            if received is None:
                raise PlatformLost("the host of the local platform ended")
            self._take(*received)

    def _take(self, message: channel.Message, fd: int | None) -> None:
        match message:
            case {"reply": int(number), "error": error}:
                self._commands.answered(number, error)
            case {"event": "up", "nodes": dict(nodes), "sites": dict(sites)}:
                assert fd is not None
                self._lives.node_sites = msgspec.convert(sites, dict[str, Site])
                for name, namespace in nodes.items():
                    self._entrances.node(name, pid_of(fd) or -1, namespace)
                os.close(fd)
                self.up.set()
            case {"event": "started"}:
                assert fd is not None
                self._started(message, fd)
            case {"event": "exited"}:
                self._exited(message)
            case {"event": "broken", "reason": str(reason)}:
                raise PlatformLost(reason)

    def _started(self, message: channel.Message, pidfd: int) -> None:
        member, incarnation = message["member"], message["incarnation"]
        epoch = self._deployment.epoch_mono_s
        events = self._deployment.run_dir / "members" / member / f"events-{incarnation}.jsonl"
        pid = pid_of(pidfd) or -1
        lines = Lines(member, incarnation, epoch)
        node, address, site = message["node"], message["address"], msgspec.convert(message["site"], Site)
        self._lives[member] = Life(member, incarnation, node, pid, pidfd, message["mark"], site, events, lines)
        self._entrances.pod(member, pid)
        t_s = message["mono_s"] - epoch
        self._emit(MemberStarted(t_s=t_s, member=member, incarnation=incarnation, node=node, address=address, pid=pid))

    def _exited(self, message: channel.Message) -> None:
        life = self._lives.pop(message["member"])
        assert life.incarnation == message["incarnation"]
        self._read(life)
        for event in life.lines.end():
            self._emit(event)
        life.close()
        self._entrances.gone(life.member)
        t_s = message["mono_s"] - self._deployment.epoch_mono_s
        status = message["status"]
        self._emit(MemberExited(t_s=t_s, member=life.member, incarnation=life.incarnation, status=status))
        life.exited.set()
        if self._role(life.member) == CONTROLLER and message["again_in_s"] is None:
            self._over_status = status
            self._over.set()

    def _read(self, life: Life) -> None:
        with suppress(FileNotFoundError), open(life.events, "rb", buffering=0) as file:
            file.seek(life.offset)
            while data := file.read(READ_BYTES_MAX):
                life.offset += len(data)
                for event in life.lines.feed(data):
                    if isinstance(event, TrainerStarted):
                        self._hold_trainer(life, event.pid)
                    self._emit(event)

    def _hold_trainer(self, life: Life, pid: int) -> None:
        """Hold the trainer by a pidfd, so that a signal later takes no search. None when it is gone already."""
        if life.trainer is not None:
            os.close(life.trainer)
        life.trainer = None
        found = find_in_pod(life.pid, pid) if self._separate else pid
        if found is None:
            return
        with suppress(OSError):
            fd = os.pidfd_open(found)
            if self._separate or owner.marker(found) == life.mark:
                life.trainer = fd
            else:
                os.close(fd)


async def _end(lives: list[Life], number: int, within_s: float) -> None:
    """Signal main processes that live, and wait until all have exited or the time is up."""
    for life in lives:
        if not life.exited.is_set():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(life.pidfd, number)
    with anyio.move_on_after(within_s):
        for life in lives:
            await life.exited.wait()
