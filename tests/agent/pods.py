"""Real pods, a real agent: namespaces, links and cgroups, removed after their use."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio

from chaos.agent import client
from chaos.agent.linux.freeze import started
from chaos.agent.linux.namespaces import inside
from chaos.agent.wire import TTL_S_MAX, Grant, Reply, State
from chaos.model.injections import Interface, KernelInjection
from chaos.model.site import Link, MainProcess, Namespace, Nic, Site

Value = TypeVar("Value")

SLOW = 20.0 if os.environ.get("VM") else 1.0
"""How much longer than on a machine of its own everything takes in an emulated one."""
WAIT_S = 10.0 * SLOW
FIRST = os.environ.get("TORCHCHAOS_TEST_FIRST", "")
"""A file that leads to the machine's first network namespace, where soft RoCE works, if this is another one."""


@functools.cache
def refused() -> str:
    """Why this process may not make network namespaces and cgroups; empty when it may."""
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"network namespaces ({tried.stderr.strip()})"
    return "" if os.access("/sys/fs/cgroup", os.W_OK) else "cgroups that may be written"


def wait_for(what: str, seen: Callable[[], Any], within_s: float = WAIT_S) -> Any:
    """The first true value of `seen`, looked at again and again; a failure once the time is over."""
    deadline = time.monotonic() + within_s
    while not (value := seen()):
        assert time.monotonic() < deadline, f"not seen within {within_s} s: {what}"
        time.sleep(0.002 * SLOW)
    return value


def namespace(pid: int) -> Namespace:
    path = f"/proc/{pid}/ns/net"
    return Namespace(path, os.stat(path).st_ino)


def run_in(pid: int, *command: str, text: str | None = None, check: bool = True) -> str:
    """Run a program in the network namespace of a process; what it prints."""
    with inside(namespace(pid)):
        return subprocess.run(command, input=text, text=True, check=check, capture_output=True).stdout


def side_by_side(*calls: Callable[[], Value]) -> list[Value]:
    """What they return, in order. Programs take long to start in an emulated machine, which has two processors."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(lambda call: call(), calls))


@contextmanager
def apart() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a network namespace of its own."""
    own = os.stat("/proc/self/ns/net").st_ino
    process = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL)
    try:
        wait_for("a new network namespace", lambda: os.stat(f"/proc/{process.pid}/ns/net").st_ino != own)
        # Without addresses of the kernel's own making, which come a second after the link.
        run_in(process.pid, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/addr_gen_mode")
        yield process
    finally:
        process.kill()
        process.wait(WAIT_S)


@dataclass
class Pod:
    """A process with two interfaces, whose peers are in the namespace of a node, and with cgroups."""

    node: subprocess.Popen[bytes]
    main: subprocess.Popen[bytes]
    site: Site
    usable: Callable[[], bool]
    """Whether the kernel calls its links usable, which it does up to a second after they are up."""
    groups: list[str] = field(default_factory=list)

    @property
    def network(self) -> Namespace:
        return next(iter(self.site.nics.values())).link.namespace

    @property
    def at_node(self) -> Namespace:
        return namespace(self.node.pid)

    def kill(self) -> None:
        self.main.kill()
        self.main.wait(WAIT_S)

    def adopt(self, pid: int) -> None:
        """Move a process into the pod's groups."""
        for group in self.groups:
            Path(group, "cgroup.procs").write_text(str(pid))

    def hears(self, count: int = 1, port: int = 0) -> int:
        """How many of `count` datagrams from the node arrive on the control interface."""
        return datagrams(self.at_node, self.network, "10.70.0.2", count, port)

    def is_heard(self, count: int = 1) -> int:
        """How many of `count` datagrams to the node arrive there."""
        return datagrams(self.network, self.at_node, "10.70.0.1", count, 0)


def datagrams(source: Namespace, destination: Namespace, address: str, count: int, port: int) -> int:
    with inside(destination):
        inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inside(source):
        outbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inbox, outbox:
        inbox.bind((address, port))
        inbox.settimeout(0.2 * SLOW)
        for _number in range(count):
            with suppress(OSError):  # What drops on the way out may tell the sender.
                outbox.sendto(b"x", inbox.getsockname())
        arrived = 0
        try:
            while arrived < count:
                arrived += len(inbox.recv(1))
        except TimeoutError:
            pass
        return arrived


def processes_of(pod: Pod) -> list[int]:
    return sorted(map(int, Path(pod.groups[0], "cgroup.procs").read_text().split()))


@contextmanager
def cgroups(name: str) -> Iterator[tuple[dict[str, str], str | None]]:
    """New groups for one pod: one of each version 1 controller that is mounted here, or one of version 2."""
    root = Path("/sys/fs/cgroup")
    unified = root / name if (root / "cgroup.controllers").exists() else None
    first = (
        [] if unified else [c for c in ("cpu", "memory", "blkio", "freezer", "pids") if (root / c / "tasks").exists()]
    )
    groups = {controller: str(root / controller / name) for controller in first}
    made = [*groups.values(), *filter(None, [unified])]
    try:
        for path in made:
            os.mkdir(path)
        yield groups, str(unified) if unified else None
    finally:
        for path in made:
            for pid in Path(path, "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            wait_for(f"{path} is empty", lambda path=path: not Path(path, "cgroup.procs").read_text())
            os.rmdir(path)


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


_MORE = (
    "addr add fd70::2/64 dev eth0 nodad",
    "route add default via 10.70.0.1",
    "route add 10.99.0.0/16 via 10.70.0.1 metric 7 mtu 1400",
    "route add default via fd70::1 dev eth0",
    "neigh add 10.70.0.9 lladdr 02:00:00:00:00:09 dev eth0 nud permanent",
)
"""What a control interface has besides its address: all that could be lost."""


@contextmanager
def make_pod(name: str = "replica-0") -> Iterator[Pod]:
    """A pod on a node of its own; it and everything of it is gone afterwards."""
    with (
        apart() as node,
        apart() as main,
        cgroups(f"torchchaos-test-{main.pid}") as (groups, unified),
        small_disk() as disk,
    ):
        nics = {}
        for role, own, far, net, more in (
            (Interface.CONTROL, "eth0", "control-0", "10.70.0", _MORE),
            (Interface.DATA, "net1", "data-0", "10.71.0", ()),
        ):
            made = f"link add {far} type veth peer name {own} netns {main.pid}"
            _ip(node.pid, made, f"addr add {net}.1/24 dev {far}", f"link set {far} up")
            _ip(main.pid, f"addr add {net}.2/24 dev {own}", f"link set {own} up", *more)
            nics[role] = Nic(Link(namespace(main.pid), own), Link(namespace(node.pid), far), (f"{net}.2",))
        ticks = started(main.pid)
        assert ticks is not None
        site = Site(name, 1, MainProcess(main.pid, ticks), nics, groups, unified, disk)
        usable = functools.partial(_are_usable, (node.pid, main.pid))
        pod = Pod(node, main, site, usable, [*groups.values(), *filter(None, [unified])])
        wait_for("links that the kernel calls usable", pod.usable)
        pod.adopt(main.pid)
        yield pod


def _are_usable(pids: Sequence[int]) -> bool:
    """Both in each namespace, with the last routes, which the kernel gives them then."""
    links = "".join(run_in(pid, "ip", "link", "show") for pid in pids)
    routes = "".join(run_in(pid, "ip", "-6", "route", "show", "table", "all") for pid in pids)
    return links.count("state UP") == routes.count("multicast") == 2 * len(pids)


def _ip(pid: int, *commands: str) -> None:
    run_in(pid, "ip", "-batch", "-", text="\n".join(commands))


class Agent:
    """An agent process, asked by blocking calls."""

    def __init__(self, **environ: str) -> None:
        self.environ = {**os.environ, **environ}
        self.folder = Path(tempfile.mkdtemp(prefix="torchchaos-agent-", dir="/dev/shm"))
        self.socket = self.folder / "agent.sock"
        self.ledger = self.folder / "ledger"
        self.asked = client.Agent(self.socket)
        self.process: subprocess.Popen[bytes] | None = None
        self.log = (self.folder / "log").open("ab")

    def start(self) -> None:
        """Start it (again) and wait until it answers, which is after its sweep."""
        command = [sys.executable, "-m", "chaos.agent", "--socket", str(self.socket), "--ledger", str(self.ledger)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=self.log, env=self.environ)
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

    def crash(self) -> None:
        """Killed, and started again by whoever started it."""
        self.kill()
        self.start()

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
        injection: KernelInjection,
        lease: str = "lease-1",
        ttl_s: float = TTL_S_MAX,
        **peers: tuple[str, ...],
    ) -> str:
        site = pod if isinstance(pod, Site) else pod.site
        return anyio.run(self.asked.grant, Grant(lease, ttl_s, injection, site, peers))

    def renew(self, lease: str = "lease-1", **peers: tuple[str, ...]) -> Reply:
        return anyio.run(self.asked.renew, lease, peers)

    def release(self, lease: str = "lease-1") -> Reply:
        return anyio.run(self.asked.release, lease)

    def status(self) -> dict[str, State]:
        return anyio.run(self.asked.status)

    def entries(self) -> list[str]:
        return os.listdir(self.ledger)


@contextmanager
def started_agent(**environ: str) -> Iterator[Agent]:
    """An agent of one's own; it has given everything back afterwards, if it is still alive."""
    agent = Agent(**environ)
    try:
        agent.start()
        yield agent
    finally:
        agent.close()
