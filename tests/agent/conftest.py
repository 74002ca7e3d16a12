"""Real pods, a real agent: namespaces, links and cgroups made for one test and removed after it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from pyroute2 import IPRoute

from chaos.agent import client
from chaos.agent.linux.freeze import started
from chaos.agent.linux.namespaces import inside
from chaos.agent.wire import Grant, Reply, State
from chaos.model.injections import HeldInjection, Interface
from chaos.model.site import Link, MainProcess, Namespace, Nic, Site

SLOW = 20.0 if os.environ.get("VM") else 1.0
"""How much longer than on a machine of its own everything takes in an emulated one."""
WAIT_S = 10.0 * SLOW


def wait_for(what: str, seen: Callable[[], Any], within_s: float = WAIT_S) -> Any:
    """The first true value of `seen`, looked at again and again; a failure once the time is over."""
    deadline = time.monotonic() + within_s
    while not (value := seen()):
        assert time.monotonic() < deadline, f"not seen within {within_s} s: {what}"
        time.sleep(0.002)
    return value


def namespace(pid: int) -> Namespace:
    path = f"/proc/{pid}/ns/net"
    return Namespace(path, os.stat(path).st_ino)


def start_apart(*flags: str, command: tuple[str, ...] = ("sleep", "infinity")) -> subprocess.Popen[bytes]:
    """A process in new namespaces; returns once it is in them."""
    own = os.stat("/proc/self/ns/net").st_ino
    process = subprocess.Popen(["unshare", "--net", *flags, *command], stdin=subprocess.DEVNULL)
    wait_for("a new network namespace", lambda: os.stat(f"/proc/{process.pid}/ns/net").st_ino != own)
    return process


@dataclass
class Pod:
    """A process with two interfaces, whose peers are in the namespace of a node, and with cgroups."""

    node: subprocess.Popen[bytes]
    main: subprocess.Popen[bytes]
    site: Site
    groups: list[str] = field(default_factory=list)

    @property
    def network(self) -> Namespace:
        return self.site.nics[Interface.CONTROL].link.namespace

    @property
    def at_node(self) -> Namespace:
        return namespace(self.node.pid)

    def kill(self) -> None:
        self.main.kill()
        self.main.wait(WAIT_S)

    def close(self) -> None:
        for process in (self.main, self.node):
            process.kill()
            process.wait(WAIT_S)
        for group in self.groups:
            for pid in Path(group, "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            wait_for(f"{group} is empty", lambda group=group: not Path(group, "cgroup.procs").read_text())
            os.rmdir(group)

    def adopt(self, pid: int) -> None:
        """Move a process into the pod's groups."""
        for group in self.groups:
            Path(group, "cgroup.procs").write_text(str(pid))

    def reaches(self, within_s: float = 0.2 * SLOW) -> bool:
        """Whether a datagram from the node arrives on the control interface."""
        with inside(self.network):
            inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with inside(self.at_node):
            outbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with inbox, outbox:
            inbox.bind(("10.70.0.2", 0))
            inbox.settimeout(within_s)
            try:
                outbox.sendto(b"x", inbox.getsockname())
                return inbox.recv(1) == b"x"
            except OSError:
                return False


def _cgroups(name: str) -> tuple[dict[str, str], str | None]:
    """New groups for one pod: of each version 1 controller that is mounted here, or one of version 2."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        path = root / name
        path.mkdir()
        return {}, str(path)
    groups = {}
    for controller in ("cpu", "memory", "blkio", "freezer"):
        if (root / controller / "cgroup.procs").exists():
            path = root / controller / name
            path.mkdir()
            groups[controller] = str(path)
    return groups, None


@contextmanager
def small_disk(size_mib: int = 64) -> Iterator[str]:
    """A folder on a file system of its own."""
    folder = tempfile.mkdtemp(prefix="torchchaos-disk-")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        os.rmdir(folder)


def make_pod(name: str = "replica-0", peer: bool = True, folder: str | None = None) -> Pod:
    node, main = start_apart(), start_apart()
    there = namespace(node.pid)
    nics = {}
    for interface, own, far, net in (
        (Interface.CONTROL, "eth0", "control-0", "10.70.0"),
        (Interface.DATA, "net1", "data-0", "10.71.0"),
    ):
        with inside(there), IPRoute() as ip:
            ip.link("add", ifname=far, kind="veth", peer={"ifname": own, "net_ns_pid": main.pid})
            _set_up(ip, far, f"{net}.1")
        with inside(namespace(main.pid)), IPRoute() as ip:
            _set_up(ip, own, f"{net}.2")
        far_end = Link(there, far) if peer else None
        nics[interface] = Nic(Link(namespace(main.pid), own), far_end, (f"{net}.2",))
    groups, unified = _cgroups(f"torchchaos-test-{main.pid}")
    ticks = started(main.pid)
    assert ticks is not None
    site = Site(name, 1, MainProcess(main.pid, ticks), nics, groups, unified, folder)
    pod = Pod(node, main, site, [*groups.values(), *filter(None, [unified])])
    pod.adopt(main.pid)
    return pod


def _set_up(ip: IPRoute, name: str, address: str) -> None:
    (index,) = ip.link_lookup(ifname=name)
    ip.addr("add", index=index, address=address, prefixlen=24)
    ip.link("set", index=index, state="up")


@pytest.fixture
def pod() -> Iterator[Pod]:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and cgroups")
    pod = make_pod()
    yield pod
    pod.close()


class Agent:
    """An agent process, asked by blocking calls."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="torchchaos-agent-", dir="/dev/shm"))
        self.socket = self.folder / "agent.sock"
        self.ledger = self.folder / "ledger"
        self.asked = client.Agent(self.socket)
        self.process: subprocess.Popen[bytes] | None = None
        self.log = (self.folder / "log").open("ab")
        self.start()

    def start(self) -> None:
        """Start it (again) and wait until it answers, which is after its sweep."""
        command = [sys.executable, "-m", "chaos.agent", "--socket", str(self.socket), "--ledger", str(self.ledger)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=self.log)
        wait_for("the agent answers", self._answers)

    def _answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, (self.folder / "log").read_text()
        try:
            self.status()
        except client.AgentLost:
            return False
        return True

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(WAIT_S)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
        self.log.close()
        shutil.rmtree(self.folder)

    def grant(
        self,
        pod: Pod | Site,
        injection: HeldInjection,
        lease: str = "lease-1",
        ttl_s: float = 10.0,
        **peers: tuple[str, ...],
    ) -> str:
        site = pod if isinstance(pod, Site) else pod.site
        return anyio.run(self.asked.grant, Grant(lease, ttl_s, injection, site, peers))

    def renew(self, lease: str = "lease-1") -> Reply:
        return anyio.run(self.asked.renew, lease)

    def release(self, lease: str = "lease-1") -> Reply:
        return anyio.run(self.asked.release, lease)

    def status(self) -> dict[str, State]:
        return anyio.run(self.asked.status)

    def entries(self) -> list[str]:
        return os.listdir(self.ledger)


@pytest.fixture
def agent() -> Iterator[Agent]:
    if os.geteuid() != 0:
        pytest.skip("needs root: the agent changes namespaces and cgroups")
    agent = Agent()
    yield agent
    agent.close()
