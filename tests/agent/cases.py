"""Every held injection as a case, and how to look at the kernel without the agent's code."""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from difflib import unified_diff
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from chaos.agent.linux.namespaces import inside
from chaos.model.injections import (
    CpuLimit,
    Direction,
    DiskFill,
    Drop,
    Freeze,
    FreezeKubelet,
    Interface,
    IoLimit,
    KernelInjection,
    LinkDown,
    MemoryLimit,
    PortDown,
    PortGone,
    PortShape,
    ProcessLimit,
    Shape,
    Spread,
)
from chaos.model.site import Nic, Site
from tests.agent.grounds import POD, RAILS
from tests.agent.pods import (
    FIRST,
    SLOW,
    Pod,
    apart,
    namespace,
    processes_of,
    refused,
    run_in,
    side_by_side,
)

TARGET = "replica-0"
MIB = 1 << 20

Seen = dict[str, str]


@dataclass(frozen=True)
class Case:
    """`at` turns the pod's site into the one to use; `missing` says what this machine lacks for the case.

    `ground` is what it is tried on: a pod with namespaces and groups, or one with RDMA ports.
    """

    name: str
    injection: KernelInjection
    at: Callable[[Site], Site] = lambda site: site
    missing: Callable[[], str] = lambda: ""
    ground: str = POD
    timed: bool = False
    """Whether the kernel ends it by itself when the agent is gone."""


def without_peers(site: Site) -> Site:
    return msgspec.structs.replace(site, nics={role: Nic(nic.link) for role, nic in site.nics.items()})


def _on_disk(site: Site) -> Site:
    return msgspec.structs.replace(site, folder=disk())


def disk() -> str:
    return os.environ.get("TORCHCHAOS_TEST_DISK", "/")


def no_nft() -> str:
    return "" if shutil.which("nft") else "the nft program"


@functools.cache
def no_netem() -> str:
    if refused():
        return refused()
    with apart() as process:
        try:
            run_in(process.pid, "tc", "qdisc", "add", "dev", "lo", "root", "netem")
        except subprocess.CalledProcessError:
            return "netem in this kernel"
    return ""


def _no_disk() -> str:
    number = os.stat(disk()).st_dev
    return "" if Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").exists() else "a disk below /"


def no_rdma() -> str:
    return "" if FIRST else "a network namespace in which soft RoCE works (TORCHCHAOS_TEST_FIRST)"


def shape(**how: object) -> Shape:
    return Shape(TARGET, Interface.DATA, **how)  # type: ignore[arg-type]


CASES = (
    Case("link-down-by-peer", LinkDown(TARGET, Interface.CONTROL)),
    Case("link-down-itself", LinkDown(TARGET, Interface.CONTROL), at=without_peers),
    Case("drop", Drop(TARGET), missing=no_nft, timed=True),
    Case("loss-on-ports", Drop(TARGET, ports=(80, 443), percent=5), missing=no_nft, timed=True),
    Case("rate", Shape(TARGET, Interface.DATA, rate_bit_s=10_000_000)),
    Case("delay", Shape(TARGET, Interface.DATA, delay_ms=20, jitter_ms=5), missing=no_netem),
    Case("rate-and-delay", shape(rate_bit_s=10_000_000, delay_ms=20), missing=no_netem),
    Case("delay-normal", shape(delay_ms=20, jitter_ms=5, spread=Spread.NORMAL), missing=no_netem),
    Case("rate-in", shape(rate_bit_s=10_000_000, direction=Direction.IN)),
    Case("rate-in-no-peer", shape(rate_bit_s=10_000_000, direction=Direction.IN), at=without_peers),
    Case("delay-in-no-peer", shape(delay_ms=20, direction=Direction.IN), at=without_peers, missing=no_netem),
    Case("loss", shape(loss_percent=5), missing=no_netem),
    Case("loss-in-bursts", shape(loss_percent=5, loss_burst=10), missing=no_netem),
    Case("duplicate", shape(duplicate_percent=5), missing=no_netem),
    Case("corrupt", shape(corrupt_percent=5), missing=no_netem),
    Case("reorder", shape(delay_ms=5, reorder_percent=10), missing=no_netem),
    Case("freeze", Freeze(TARGET)),
    Case("freeze-kubelet", FreezeKubelet(TARGET), timed=True),
    Case("cpu-limit", CpuLimit(TARGET, 0.5)),
    Case("memory-limit", MemoryLimit(TARGET, limit_bytes=64 * MIB)),
    Case("memory-limit-kill", MemoryLimit(TARGET, limit_bytes=64 * MIB, kill=True)),
    Case("io-limit", IoLimit(TARGET, MIB), at=_on_disk, missing=_no_disk),
    Case("process-limit", ProcessLimit(TARGET, 3)),
    Case("port-down", PortDown(TARGET, 0), missing=no_rdma, ground=RAILS),
    Case("all-ports-down", PortDown(TARGET), missing=no_rdma, ground=RAILS),
    Case("port-delay", PortShape(TARGET, 0, delay_ms=20), missing=no_rdma, ground=RAILS),
    Case("port-loss", PortShape(TARGET, 0, loss_percent=5), missing=no_rdma, ground=RAILS),
    Case("port-gone", PortGone(TARGET, 0), missing=no_rdma, ground=RAILS),
    Case("disk-fill", DiskFill(TARGET, MIB), timed=True),
)


def parameters() -> list[object]:
    return [pytest.param(case, id=case.name) for case in CASES]


def usable(case: Case) -> Case:
    """The case; the test is skipped where the machine lacks something."""
    missing = case.missing()
    if missing:
        pytest.skip(f"needs {missing}")
    return case


def look(pod: Pod) -> Seen:
    """All of a pod that an injection could change, as the usual programs and files show it."""
    places = {pod.node.pid: "node", pod.main.pid: "pod"}
    shows = {f"{where}: {what}": partial(show, pid) for pid, where in places.items() for what, show in _SHOW}
    seen = dict(zip(shows, side_by_side(*shows.values()), strict=True))
    for group in pod.groups:
        for path in sorted(Path(group).iterdir()):
            if path.name in _LIMITS:
                seen[str(path)] = path.read_text()
    for pid in processes_of(pod) if pod.groups else ():
        seen[f"process {pid}"] = (
            "stopped" if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][1] in "Tt" else ""
        )
    if pod.site.folder:
        seen["free"] = str(os.statvfs(pod.site.folder).f_bfree)
    return seen


def _links(pid: int) -> str:
    what = ("link show", "addr show", "route show table all", "neigh show nud permanent")
    return _in_order(run_in(pid, "ip", "-o", "-batch", "-", text="\n".join(what)))


def _queues(pid: int) -> str:
    with inside(namespace(pid)):
        links = [name for _number, name in socket.if_nameindex()]
    # Of a link without a hook for filters it is an error to ask for those.
    what = [f"filter show dev {link} {side}" for link in links for side in ("root", "ingress", "egress")]
    return run_in(pid, "tc", "-force", "-batch", "-", text="\n".join(["qdisc show", *what]), check=False)


def nft_rules(pid: int) -> str:
    return "" if no_nft() else run_in(pid, "nft", "list", "ruleset")


def _ports(pid: int) -> str:
    return _in_order(run_in(pid, "rdma", "link", "show")) if FIRST else ""


def _in_order(text: str) -> str:
    return "\n".join(sorted(text.splitlines()))


_SHOW = {"ip": _links, "tc": _queues, "nft": nft_rules, "rdma": _ports}.items()
_LIMITS = {
    *("cpu.cfs_quota_us", "memory.limit_in_bytes", "memory.oom_control"),
    *("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"),
    *("cpu.max", "memory.max", "memory.high", "io.max", "cgroup.freeze", "pids.max"),
}


def difference(before: Seen, after: Seen) -> Seen:
    """What is left behind: of entries that are not what they were, the lines that went (-) and came (+)."""
    gone, new = dict.fromkeys(before.keys() - after.keys(), "gone"), dict.fromkeys(after.keys() - before.keys(), "new")
    both = before.keys() & after.keys()
    return gone | new | {key: _changes(before[key], after[key]) for key in both if before[key] != after[key]}


def _changes(before: str, after: str) -> str:
    lines = unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return "\n".join(line for line in islice(lines, 2, None) if not line.startswith("@@"))


def give_back_seen(pod: Pod, before: Seen, within_s: float = 3 * SLOW) -> None:
    """Wait until the pod is as it was; the kernel takes up to a second to call a link that is back usable."""
    deadline = time.monotonic() + within_s
    while left := difference(before, look(pod)):
        assert time.monotonic() < deadline, "\n".join(f"{key}\n{left[key]}" for key in left)
