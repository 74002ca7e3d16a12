"""The local platform: a cluster of pods on this machine, for as long as a context is open.

    async with LocalPlatform().deploy(deployment, emit) as cluster: ...

Leaves in the run's folder: `members/<member>/` (logs, events, scratch) and `platform/` (what was asked of the host, its
log, the names of pods, and `enter.txt`: the line that opens a shell inside each pod or node). Leaves nothing else.

A pod sees the machine's files, but has /tmp, /run and /dev/shm of its own; the run's folder, the interpreter, the
import path and the runner's working folder stay visible there. Pods are separated for tests, not for safety.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import anyio

from chaos.files import json_of
from chaos.model.errors import BadInput, near
from chaos.model.ports import Cluster, Deployment, Emit, PlatformLost
from chaos.platforms.local import channel, doctor, sweep
from chaos.platforms.local.cluster import LocalCluster
from chaos.platforms.local.spec import Member, Spec

UP_S = 120.0
CLEAN_UP_S = 30.0
MEMBERS_MAX = 250

_KEEPER = str(Path(__file__).with_name("keeper.py"))


class LocalPlatform:
    """Implements `chaos.model.ports.Platform`.

    `isolation` is one of `doctor.ISOLATIONS`; None takes the best that works here. `visible` are further paths that
    pods shall see although they lie below /tmp, /run or /dev/shm. BadInput when the isolation is unknown or refused.
    """

    name = "local"

    def __init__(self, isolation: str | None = None, visible: Iterable[Path] = ()) -> None:
        if isolation is not None and isolation not in doctor.ISOLATIONS:
            raise BadInput(f"unknown isolation {isolation!r}; {near(isolation, doctor.ISOLATIONS)}")
        if isolation is not None:
            refusal = doctor.refusal(isolation)
            if refusal is not None:
                raise BadInput(f"isolation {isolation!r} does not work here: {refusal}")
        self._isolation = isolation or doctor.isolation()
        self._visible = tuple(visible)

    def isolation(self) -> str:
        return self._isolation

    def capabilities(self) -> frozenset[str]:
        return doctor.capabilities(self._isolation)

    def deploy(self, deployment: Deployment, emit: Emit) -> AbstractAsyncContextManager[Cluster]:
        return self._deploy(deployment, emit)

    @asynccontextmanager
    async def _deploy(self, deployment: Deployment, emit: Emit) -> AsyncIterator[Cluster]:
        spec_path = self._write_spec(deployment)
        sweep.remove(sweep.find())
        ours, hosts = channel.pair()
        life, life_of_keeper = os.pipe()
        cluster = LocalCluster(deployment, emit, ours, self._isolation)
        with ours, open(life_of_keeper, "wb", buffering=0) as alive:
            keeper = _start_keeper(spec_path, life, hosts)
            try:
                with _single_error():
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(cluster.serve)
                        with anyio.move_on_after(UP_S):
                            await cluster.up.wait()
                        if not cluster.up.is_set():
                            raise PlatformLost(f"the cluster was not up within {UP_S} s; see {spec_path.parent}")
                        yield cluster
                        cluster.read_events()
                        tasks.cancel_scope.cancel()
            finally:
                alive.close()
                with anyio.CancelScope(shield=True):
                    await _end_keeper(keeper)
                cluster.close()

    def _write_spec(self, deployment: Deployment) -> Path:
        workload, placements = deployment.workload, deployment.topology.placements
        if len(placements) > MEMBERS_MAX:
            raise BadInput(f"{len(placements)} members; the local platform takes at most {MEMBERS_MAX}")
        members = [
            Member(p.member, p.role, p.node, workload.command(p.member), workload.roles[p.role].on_demand)
            for p in placements
        ]
        run_dir = deployment.run_dir.resolve()
        spec = Spec(
            isolation=self._isolation,
            run_dir=str(run_dir),
            python=sys.executable,
            sys_path=[os.path.abspath(entry) for entry in sys.path],
            keep=_keep([str(run_dir), *map(str, self._visible)]),
            restart=deployment.topology.restart,
            env=workload.env,
            members=members,
        )
        folder = spec.platform_dir()
        folder.mkdir(exist_ok=True)
        path = folder / "cluster.json"
        path.write_bytes(json_of(spec))
        return path


def _keep(more: list[str]) -> list[str]:
    """Paths below a pod's private folders that it needs; none inside another."""
    import_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    wanted = [*more, sys.prefix, sys.base_prefix, os.path.dirname(sys.executable), os.getcwd(), *sys.path, *import_path]
    both = {form(path) for path in wanted if path for form in (os.path.abspath, os.path.realpath)}
    hidden = sorted(path for path in both if path.startswith(("/tmp/", "/run/", "/dev/shm/")) and os.path.exists(path))
    return [path for path in hidden if not any(path.startswith(f"{other}/") for other in hidden)]


def _start_keeper(spec_path: Path, life: int, control: socket.socket) -> subprocess.Popen[bytes]:
    """Start it in a session of its own; its ends of pipe and channel are closed here."""
    command = [sys.executable, "-I", "-S", _KEEPER, str(life), str(control.fileno()), str(spec_path)]
    with control, open(spec_path.with_name("host.log"), "ab") as log:
        try:
            return subprocess.Popen(
                command,
                pass_fds=(life, control.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(life)


async def _end_keeper(keeper: subprocess.Popen[bytes]) -> None:
    """Wait for it to remove everything; do it in its place when it failed or was killed."""
    pidfd = os.pidfd_open(keeper.pid)
    try:
        with anyio.move_on_after(CLEAN_UP_S):
            await anyio.wait_readable(pidfd)
        if keeper.poll() == 0:
            return
        keeper.kill()
        keeper.wait(CLEAN_UP_S)
    finally:
        os.close(pidfd)
    left = sweep.remove([found for found in sweep.find() if found.owner.split("-")[1] == str(keeper.pid)])
    if left:
        raise PlatformLost(f"could not remove {', '.join(map(str, left))}; when nothing uses it: chaos clean")


@contextmanager
def _single_error() -> Iterator[None]:
    """An error that came alone out of a task group is raised as itself."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if error is group:
            raise
        raise error from error.__cause__
