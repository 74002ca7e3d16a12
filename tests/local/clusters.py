"""Running toy clusters in tests: a workload, a journal to wait on, questions to members."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from chaos.model.events import ControllerStarted, Event, TrainerStarted
from chaos.model.ports import Cluster, Deployment
from chaos.model.topology import Restart, place
from chaos.model.workload import Role, Workload
from chaos.platforms.local.platform import LocalPlatform

TOY = str(Path(__file__).with_name("toy.py"))
WAIT_S = 20.0 if "VM" not in os.environ else 200.0  # An emulated machine is slow.
COMMAND = ("{python}", "-I", "-S", TOY, "{member}", "{incarnation}", "{events}", "{address}", "{data_interface}")


class Journal:
    """What a platform emitted, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._more = anyio.Event()

    def emit(self, event: Event) -> None:
        self.events.append(event)
        self._more.set()

    async def wait(self, wanted: Callable[[Event], bool], within_s: float = WAIT_S) -> Event:
        """The first event that is wanted, now or later; TimeoutError after `within_s`."""
        with anyio.fail_after(within_s):
            while True:
                for event in self.events:
                    if wanted(event):
                        return event
                self._more = anyio.Event()
                await self._more.wait()

    async def ready(self, member: str, incarnation: int = 1) -> Event:
        return await self.wait(
            lambda e: (
                isinstance(e, TrainerStarted | ControllerStarted) and (e.member, e.incarnation) == (member, incarnation)
            )
        )

    def of(self, member: str, kind: type[Event] = Event) -> list[Any]:
        return [event for event in self.events if event.member == member and isinstance(event, kind)]


class Running:
    """A toy cluster that is up."""

    def __init__(self, cluster: Cluster, journal: Journal, deployment: Deployment) -> None:
        self.cluster = cluster
        self.journal = journal
        self.deployment = deployment
        self.run_dir = deployment.run_dir

    async def ask(self, member: str, do: str, **arguments: Any) -> Any:
        """What the member answers; None when it ended instead."""
        return await anyio.to_thread.run_sync(self._ask, member, {"do": do, **arguments})

    def _ask(self, member: str, request: dict[str, Any]) -> Any:
        folder = os.open(self.run_dir / "members" / member / "scratch", os.O_PATH)
        try:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.settimeout(WAIT_S)
                peer.connect(f"/proc/self/fd/{folder}/control")
                peer.sendall(json.dumps(request).encode() + b"\n")
                line = peer.makefile().readline()
        finally:
            os.close(folder)
        return json.loads(line) if line else None


def toy_deployment(
    run_dir: Path, replicas: int = 2, restart: Restart = Restart.ALWAYS, command: tuple[str, ...] = COMMAND
) -> Deployment:
    names = tuple(f"replica-{n}" for n in range(replicas))
    roles = {"controller": Role(("controller",), COMMAND), "replica": Role(names, command)}
    roles["leftover"] = Role(("leftover-0",), command, on_demand=True)
    workload = Workload(1, "toy", replicas, 1, 10, roles, {"TOY": "1"})
    return Deployment(f"toy-{os.getpid()}", run_dir, workload, place(workload, 2, restart), time.monotonic())


@asynccontextmanager
async def toy_cluster(
    run_dir: Path,
    isolation: str,
    restart: Restart = Restart.ALWAYS,
    replicas: int = 2,
    visible: Iterable[Path] = (),
) -> AsyncIterator[Running]:
    """A cluster of which every member is ready."""
    deployment, journal = toy_deployment(run_dir, replicas, restart), Journal()
    async with LocalPlatform(isolation, visible).deploy(deployment, journal.emit) as cluster:
        for member, role in deployment.workload.members().items():
            if not deployment.workload.roles[role].on_demand:
                await journal.ready(member)
        yield Running(cluster, journal, deployment)


async def be_killed(run_dir: Path, isolation: str) -> None:
    """For tests that kill a runner: bring a cluster up, say so, and wait for the end."""
    async with toy_cluster(run_dir, isolation) as running:
        for member in ("replica-0", "replica-1"):
            await running.ask(member, "orphan")
        print("up", flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Ignored in what a shell started in the background.
    anyio.run(be_killed, Path(sys.argv[1]), sys.argv[2])
