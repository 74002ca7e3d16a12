"""The runner's side of a cluster: who is alive, what they say, disturbing them, ending the job.

`serve` is the task that takes the host's messages and reads the members' event files; everything else is called by the
runner while it runs. Pods are held by pidfds, which the host sends: a signal cannot hit a process that took over a pid.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from chaos.model.events import MemberExited, MemberStarted, TrainerStarted
from chaos.model.injections import Delete, HeldInjection, OneShot, Process, Proof, Signal
from chaos.model.ports import Deployment, Emit, Hold, InjectionRefused, PlatformLost
from chaos.platforms.lines import Lines
from chaos.platforms.local import channel, owner
from chaos.platforms.local.entrances import Entrances

POLL_S = 0.02
READ_BYTES_MAX = 4 * 1024 * 1024
REPLY_S = 5.0
GONE_S = 5.0
CONTROLLER_STOP_S = 30.0
MEMBERS_STOP_S = 6.0
CONTROLLER = "controller"


@dataclass
class Life:
    """One life of a member as the runner sees it; `pid` counts in the runner's pid namespace."""

    member: str
    incarnation: int
    pid: int
    pidfd: int
    mark: str
    events: Path
    lines: Lines
    offset: int = 0
    trainer: int | None = None
    """Pidfd of its trainer, once that told its pid."""
    exited: anyio.Event = field(default_factory=anyio.Event)

    def close(self) -> None:
        for fd in (self.pidfd, self.trainer):
            if fd is not None:
                os.close(fd)
        self.trainer = None


class LocalCluster:
    """Implements `chaos.model.ports.Cluster`."""

    def __init__(self, deployment: Deployment, emit: Emit, control: socket.socket, isolation: str) -> None:
        self.up = anyio.Event()
        self._deployment = deployment
        self._emit = emit
        self._control = control
        self._separate = isolation != "processes"
        self._entrances = Entrances(deployment.run_dir / "platform", isolation)
        self._lives: dict[str, Life] = {}
        self._replies: dict[int, tuple[anyio.Event, list[str | None]]] = {}
        self._commands = 0
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
        for life in self._lives.values():
            life.close()
        self._lives.clear()

    async def inject(self, injection: OneShot) -> Proof:
        match injection:
            case Delete(member):
                return await self._delete(self._alive(member))
            case Signal(member, process, number):
                return await self._signal(self._alive(member), process, number)
            case _:
                raise InjectionRefused(f"the local platform cannot make {type(injection).__name__} yet")

    @asynccontextmanager
    async def hold(self, injection: HeldInjection) -> AsyncIterator[Hold]:
        raise InjectionRefused(f"the local platform cannot hold {type(injection).__name__} yet")
        yield

    async def stop(self) -> None:
        await self._command("retire")
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

    async def _delete(self, life: Life) -> Proof:
        with _watch(life.pidfd) as gone:
            await self._command("delete", member=life.member, incarnation=life.incarnation)
            with anyio.move_on_after(GONE_S) as waited:
                await anyio.wait_readable(gone)
                if not self._separate:  # The kernel does not end the children; the host does, then says so.
                    await life.exited.wait()
        if waited.cancelled_caught:
            raise InjectionRefused(f"{life.member} outlived SIGKILL by {GONE_S} s")
        what = "its pid namespace" if self._separate else "all its processes"
        return Proof(life.member, life.incarnation, f"main process {life.pid} is gone, with {what}")

    async def _signal(self, life: Life, process: Process, number: int) -> Proof:
        target = life.pidfd if process is Process.MAIN else life.trainer
        if target is None:
            raise InjectionRefused(f"{life.member} has told of no trainer in its life {life.incarnation}")
        name = signal.Signals(number).name
        what = f"{process.value} process of {life.member}"
        with _watch(target) as gone:
            pid = _pid(target)
            if pid is None:
                raise InjectionRefused(f"the {what} is gone already")
            try:
                signal.pidfd_send_signal(target, number)
            except OSError as error:
                raise InjectionRefused(f"{name} to the {what}: {error.strerror}") from error
            with anyio.move_on_after(GONE_S) as waited:
                if number in (signal.SIGSTOP, signal.SIGCONT):
                    return await _see_stopped(life, pid, what, number == signal.SIGSTOP)
                await anyio.wait_readable(gone)
        if waited.cancelled_caught:
            raise InjectionRefused(f"{name} was sent but not seen in force within {GONE_S} s on the {what}")
        return Proof(life.member, life.incarnation, f"{process.value} process {pid} is gone")

    def _alive(self, member: str) -> Life:
        if member not in self._deployment.workload.members():
            raise InjectionRefused(f"there is no member {member}")
        life = self._lives.get(member)
        if life is None or _pid(life.pidfd) is None:
            raise InjectionRefused(f"{member} is not alive")
        return life

    def _role(self, member: str) -> str:
        return self._deployment.workload.members()[member]

    async def _command(self, do: str, **arguments: Any) -> None:
        self._commands += 1
        number = self._commands
        done = anyio.Event()
        answer: list[str | None] = []
        self._replies[number] = (done, answer)
        try:
            channel.send(self._control, {"id": number, "do": do, **arguments})
        except OSError as error:
            raise PlatformLost(f"the host takes no commands: {error.strerror}") from error
        with anyio.move_on_after(REPLY_S):
            await done.wait()
        del self._replies[number]
        if not answer:
            raise PlatformLost(f"the host did not answer {do} within {REPLY_S} s")
        if answer[0] is not None:
            raise InjectionRefused(answer[0])

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
                if number in self._replies:
                    done, answer = self._replies[number]
                    answer.append(error)
                    done.set()
            case {"event": "up", "nodes": dict(nodes)}:
                assert fd is not None
                for name, namespace in nodes.items():
                    self._entrances.node(name, _pid(fd) or -1, namespace)
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
        pid = _pid(pidfd) or -1
        lines = Lines(member, incarnation, epoch)
        self._lives[member] = Life(member, incarnation, pid, pidfd, message["mark"], events, lines)
        self._entrances.pod(member, pid)
        t_s = message["mono_s"] - epoch
        node, address = message["node"], message["address"]
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


async def _see_stopped(life: Life, pid: int, what: str, stopped: bool) -> Proof:
    state = "stopped" if stopped else "running again"
    while True:
        stat = owner.stat(pid)
        if stat is None:
            raise InjectionRefused(f"the {what} ended")
        if (stat[0] in "Tt") is stopped:
            return Proof(life.member, life.incarnation, f"process {pid} is {state}")
        await anyio.sleep(0.001)


@contextmanager
def _watch(pidfd: int) -> Iterator[int]:
    """A copy of a pidfd to wait on: two tasks may not wait on one, and its life may be closed meanwhile."""
    copy = os.dup(pidfd)
    try:
        yield copy
    finally:
        os.close(copy)


def _pid(pidfd: int) -> int | None:
    """The process's pid as this process sees it; None when it is gone."""
    text = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    pid = int(fields["Pid"])
    return pid if pid > 0 else None


def find_in_pod(main: int, pid: int) -> int | None:
    """The machine's pid of the process that has `pid` in the pid namespace led by `main`."""
    try:
        namespace = os.readlink(f"/proc/{main}/ns/pid")
    except OSError:
        return None
    for candidate in owner.pids():
        with suppress(OSError):
            status = Path(f"/proc/{candidate}/status").read_text()
            numbers = status.partition("\nNSpid:")[2].partition("\n")[0].split()
            if numbers and int(numbers[-1]) == pid and os.readlink(f"/proc/{candidate}/ns/pid") == namespace:
                return candidate
    return None
