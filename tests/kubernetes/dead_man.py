"""Dead-man trials on a cluster whose nodes are on this machine: everything that can be held is held, then someone dies.

    python -m tests.kubernetes.dead_man FILE      (a runner of its own: asks for what FILE lists, and holds it)

Two pods stay up for many trials; each trial's runner is a process with a Lease of its own. What is left is read from
the kernel by its files and the usual programs, on the pods and on their node.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import msgspec

from chaos.model.injections import (
    CpuLimit,
    DiskFill,
    Drop,
    Freeze,
    FreezeKubelet,
    HeldInjection,
    Interface,
    IoLimit,
    LinkDown,
    MemoryLimit,
    Shape,
)
from chaos.platforms.kubernetes import objects, order
from chaos.platforms.kubernetes.client import Kube, KubeError, connect
from chaos.platforms.kubernetes.clocks import micro_time
from chaos.platforms.kubernetes.objects import LEASE_TTL_S, Names
from chaos.platforms.kubernetes.options import laid_over, read
from chaos.platforms.kubernetes.orders import Asked, Orders
from tests.kubernetes.conftest import Cluster

VICTIMS = ("runner", "agent", "both", "API server", "NIC of the node")
TTL_S = float(LEASE_TTL_S)
WAIT_S = 60.0
LOOK_S = 0.02
SERVER_AWAY_S, NIC_AWAY_S = 60.0, 12.0
"""Many times to live."""
LATE_S = 0.3
"""What looking at everything takes, on a busy machine."""
CONTROL, DATA, UPLINK = "eth0", "net1", "eth1"
NODE, FABRIC, CABLE = "kube-n0", "kube-fabric", "v1"
"""A node, and where the far end of its control NIC is, as TORCHCHAOS_KUBE's `kube` has it."""


class Held(msgspec.Struct, frozen=True):
    asked: Asked
    injection: HeldInjection


class Job(msgspec.Struct, frozen=True):
    """What one trial's runner is told."""

    namespace: str
    run: str
    orders: list[Held]


@dataclass(frozen=True)
class Target:
    """A member where it lives: the pid of its main process on this machine, and its node."""

    asked: Asked
    pid: int

    def network(self, *command: str) -> str:
        enter = ["nsenter", f"--net=/proc/{self.pid}/ns/net", *command]
        return subprocess.run(enter, capture_output=True, text=True).stdout

    def limit(self, controller: str, name: str, above: int) -> str:
        """A file of its group, or of one so many above it."""
        for line in Path(f"/proc/{self.pid}/cgroup").read_text().splitlines():
            _number, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                return Path(f"/sys/fs/cgroup/{controller}{path}/{'../' * above}{name}").read_text().strip()
        return ""


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True).stdout


def frozen(pid: int) -> bool:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            if (task / "stat").read_text().rpartition(")")[2].split()[0] in "Tt":
                return True
    return False


def kinds(one: Target, two: Target, node: str) -> Iterator[tuple[str, Held, Callable[[], str]]]:
    """Everything that is held at once, each with how it looks in the kernel; of two members of one node."""
    (kubelet,) = processes_with(f"--hostname-override={node}")
    a, b = one.asked.target.member, two.asked.target.member
    of_node = Asked(node, order.Target(node, {Interface.DATA.value: UPLINK}))

    def ask(injection: HeldInjection) -> Held:
        return Held({a: one.asked, b: two.asked, node: of_node}[injection.target], injection)

    yield "link", ask(LinkDown(a, Interface.DATA)), lambda: one.network("ip", "-o", "link", "show", DATA)
    yield "drop", ask(Drop(a, ports=(53,))), lambda: one.network("nft", "list", "ruleset")
    yield "rate", ask(Shape(a, Interface.CONTROL, rate_bit_s=10**7)), lambda: one.network("tc", "qdisc", "show")
    yield "cpu", ask(CpuLimit(a, 0.5)), lambda: one.limit("cpu", "cpu.cfs_quota_us", 1)
    yield "memory", ask(MemoryLimit(a, limit_bytes=512 << 20)), lambda: one.limit("memory", "memory.limit_in_bytes", 1)
    io = "blkio.throttle.write_bps_device"
    yield "io", ask(IoLimit(a, 10**6)), lambda: one.limit("blkio", io, 0)
    yield "disk", ask(DiskFill(a, 1 << 20)), lambda: str(os.statvfs(f"/proc/{one.pid}/root/scratch").f_bavail > 10_000)
    yield "freeze", ask(Freeze(b)), lambda: str(frozen(two.pid))
    yield "node link", ask(LinkDown(node, Interface.DATA)), lambda: ip("-n", node, "-o", "link", "show", UPLINK)
    yield "kubelet", ask(FreezeKubelet(node)), lambda: str(frozen(kubelet))


POD = "dead-man"
MEMBERS = ("replica-0", "replica-1")
_SLEEP = "import os, time; os.makedirs('/scratch/disk'); time.sleep(1e9)"


@contextmanager
def targets(cluster: Cluster, node: str) -> Iterator[list[Target]]:
    """Two pods on one node that do nothing."""
    options = read(cluster.file)
    container = {
        "name": "member",
        "image": options.job.image,
        "command": [options.job.python, "-c", _SLEEP, POD],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    scratch = {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
    spec = {
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": 0,
        "nodeName": node,
        "containers": [laid_over(container, options.job.container)],
        "volumes": [scratch],
    }
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{POD}-{member}", "labels": {"app": POD}},
            "spec": laid_over(spec, options.job.pod),
        }
        for member in MEMBERS
    ]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
    try:
        assert cluster.kubectl("create", "-f", "-", text=body).returncode == 0
        ready = cluster.kubectl("wait", "--for=condition=Ready", "pod", "-l", f"app={POD}", "--timeout=50s")
        assert ready.returncode == 0, ready.stderr
        yield [_target(cluster, node, member) for member in MEMBERS]
    finally:
        cluster.kubectl("delete", "pod", "-l", f"app={POD}", "--force", "--grace-period=0")


def _target(cluster: Cluster, node: str, member: str) -> Target:
    pod = f"{POD}-{member}"
    uid = cluster.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}").stdout
    (pid,) = (p for p in processes_with(POD) if uid in Path(f"/proc/{p}/cgroup").read_text())
    inner = int(Path(f"/proc/{pid}/status").read_text().partition("NSpid:")[2].splitlines()[0].split()[-1])
    nics = {Interface.CONTROL.value: CONTROL, Interface.DATA.value: DATA}
    return Target(Asked(node, order.Target(member, nics, 1, pod, uid, inner)), pid)


@dataclass
class Trial:
    """Who died, and for each injection when its target was as before, in seconds from then; what was left."""

    victim: str
    reverted_s: dict[str, float] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    def late(self) -> list[str]:
        return [name for name, took_s in self.reverted_s.items() if took_s > TTL_S + LATE_S]


def table(trials: list[Trial]) -> str:
    """One line per victim and injection: how often, and after how long at worst."""
    rows = [f"{'victim':16}| {'injection':10}| trials | worst s"]
    for victim in VICTIMS:
        of = [trial.reverted_s for trial in trials if trial.victim == victim]
        for name in of[0] if of else ():
            took_s = [reverted_s[name] for reverted_s in of if name in reverted_s]
            rows.append(f"{victim:16}| {name:10}| {len(took_s):6} | {max(took_s):7.2f}")
    number, left = sum(len(trial.reverted_s) for trial in trials), sum(len(trial.left) for trial in trials)
    late = sum(len(trial.late()) for trial in trials)
    return "\n".join([*rows, f"{number} trials, {left} leftovers, {late} later than a ttl of {TTL_S:g} s"])


def trial(victim: str, job: Job, looks: dict[str, Callable[[], str]], wait_s: float) -> Trial:
    """`wait_s` after everything is in force someone dies; a ttl later everything must be as before."""
    before = {name: look() for name, look in looks.items()}
    done = Trial(victim)
    with runner(job) as process:
        for name, look in looks.items():
            assert look() != before[name], f"{name} cannot be seen in force"
        time.sleep(wait_s)
        with taken(victim, process):
            with ThreadPoolExecutor(len(looks)) as watchers:
                took = {name: watchers.submit(_until, look, before[name]) for name, look in looks.items()}
            done.reverted_s = {name: took_s for name, one in took.items() if (took_s := one.result()) is not None}
        process.kill()
    done.left = [f"{name} still: {looks[name]()}" for name in looks.keys() - done.reverted_s.keys()]
    done.left += anyio.run(_cleared, job)
    done.left += [f"{name} again: {look()}" for name, look in looks.items() if look() != before[name]]
    return done


def _until(look: Callable[[], str], before: str) -> float | None:
    """How long it takes until that is as before; None when it does not come to be."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < WAIT_S:
        if look() == before:
            return time.monotonic() - began_s
        time.sleep(LOOK_S)
    return None


@contextmanager
def runner(job: Job) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has everything in force."""
    text = msgspec.json.encode(job)
    command = [sys.executable, "-m", "tests.kubernetes.dead_man"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(text)
            process.stdin.close()
            assert process.stdout.readline() == b"in force\n"
            yield process
        finally:
            process.kill()


@contextmanager
def taken(victim: str, process: subprocess.Popen[bytes]) -> Iterator[None]:
    match victim:
        case "runner" | "agent" | "both":
            if victim != "agent":
                process.kill()
            if victim != "runner":
                os.kill(agent_of(NODE), signal.SIGKILL)
            yield
        case "API server":
            (server,) = processes_with("--etcd-servers=http://127.0.0.1:2379")
            os.kill(server, signal.SIGSTOP)
            try:
                yield from away(SERVER_AWAY_S)
            finally:
                os.kill(server, signal.SIGCONT)
        case _:
            link = ["ip", "-n", FABRIC, "link", "set", CABLE]
            subprocess.run([*link, "down"], check=True)
            try:
                yield from away(NIC_AWAY_S)
            finally:
                subprocess.run([*link, "up"], check=True)


def away(for_s: float) -> Iterator[None]:
    began_s = time.monotonic()
    yield
    time.sleep(max(0.0, began_s + for_s - time.monotonic()))


def agent_of(node: str) -> int:
    """The agent of a node: the process that a process of the same kind keeps alive."""
    found = set(processes_with("chaos.platforms.kubernetes.agent", node))
    (agent,) = (pid for pid in found if parent(pid) in found)
    return agent


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def processes_with(*words: str) -> list[int]:
    """Processes that have all these among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                if all(word.encode() in arguments for word in words):
                    found.append(int(entry.name))
    return found


async def _cleared(job: Job) -> list[str]:
    """Once the runner is dead its objects can be removed; those that are stuck."""
    kube, names = connect(), Names(job.run, job.namespace)
    left: list[str] = []
    with anyio.move_on_after(WAIT_S):
        while True:
            with suppress(KubeError):
                await kube.delete(f"{names.leases}/{names.run}")
                listed = await kube.get(names.injections, labelSelector=names.selector)
                left = [f"injection {item['metadata']['name']}" for item in listed["items"]]
                for item in listed["items"]:
                    await kube.delete(f"{names.injections}/{item['metadata']['name']}")
                if not left:
                    return []
            await anyio.sleep(0.1)
    return left


async def hold(job: Job) -> None:
    """Everything at once, until killed."""
    kube, names = connect(), Names(job.run, job.namespace)
    lease = await kube.create(names.leases, objects.lease(names, "dead man", micro_time()))
    orders = Orders(kube, names, lease, {}, {})
    async with anyio.create_task_group() as tasks, AsyncExitStack() as stack:
        tasks.start_soon(orders.follow)
        tasks.start_soon(_renew, kube, names)
        for one in job.orders:
            await stack.enter_async_context(orders.hold(one.injection, one.asked))
        print("in force", flush=True)
        await anyio.sleep_forever()


async def _renew(kube: Kube, names: Names) -> None:
    while True:
        with suppress(KubeError):
            await kube.merge(f"{names.leases}/{names.run}", {"spec": {"renewTime": micro_time()}})
        await anyio.sleep(TTL_S / 3)


if __name__ == "__main__":
    anyio.run(hold, msgspec.json.decode(sys.stdin.buffer.read(), type=Job))
