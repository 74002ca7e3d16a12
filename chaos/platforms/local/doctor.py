"""What this machine can do for local clusters, and what to type for the rest.

`probe()` tries each thing in a child process and leaves nothing; `isolation()` is the best that works. It changes no
setting and installs nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from chaos.agent.linux import rdma
from chaos.platforms.local import cgroups, disks

ISOLATIONS = ("namespaces", "user-namespaces", "processes")
"""Best first."""

PROBE_S = 60.0
MEMORY_GIB_MIN = 4.0
DISK_GIB_MIN = 2.0

_PROBE = str(Path(__file__).with_name("probe.py"))


class Check(msgspec.Struct, frozen=True):
    """One thing that was tried. `meaning` says what it is for; `remedy` what to type to get it, if anything."""

    name: str
    ok: bool
    found: str
    meaning: str
    remedy: str = ""


def isolation() -> str:
    """The best isolation that works here."""
    return available()[0]


def available() -> tuple[str, ...]:
    """Every isolation that works here, best first."""
    return tuple(name for name in ISOLATIONS if refusal(name) is None)


@functools.cache
def refusal(name: str) -> str | None:
    """Why an isolation does not work here; None when it does."""
    if name == "processes":
        return None
    if name == "namespaces" and os.geteuid() != 0:
        return "it needs root; user-namespaces may not"
    return _try(name)[1] or _links()[1]


@functools.cache
def capabilities(name: str) -> frozenset[str]:
    """What faults may need and a cluster with this isolation has here, by the names of `injections.needs`."""
    if name == "processes":
        return frozenset({"launch", "moves", "nodes"})
    found = {"freeze", "launch", "links", "moves", "names", "nodes", "disk"}
    if _nft().ok:
        found.add("nft")
    if not _links()[0]:
        found.add("netem")
    if name == "namespaces":
        writable = [h for h in cgroups.hierarchies() if os.access(h.base, os.W_OK)]
        found |= {f"cgroup.{c.replace('blkio', 'io')}" for h in writable for c in h.controllers}
        if not disks.on_loops():  # A disk in memory has no rate.
            found.discard("cgroup.io")
    return frozenset(found)


def probe() -> list[Check]:
    """Try everything."""
    kernel = [_namespaces(), _user_namespaces(), _cgroups(), _disks(), _bridges(), _netem(), _nft(), _rdma()]
    return [*kernel, *_resources(), _training()]


def _namespaces() -> Check:
    reason = refusal("namespaces")
    remedy = "" if reason is None else "run as root on the machine itself, or in a container with --privileged"
    meaning = "pods with namespaces, links and cgroups of their own"
    return Check("namespaces", reason is None, reason or "work", meaning, remedy)


def _user_namespaces() -> Check:
    reason = refusal("user-namespaces")
    meaning = "the same for an ordinary user, without cgroups"
    if reason is None:
        return Check("user-namespaces", True, "work", meaning)
    for path, refused, remedy in (
        ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ):
        if _read(path) == refused:
            return Check("user-namespaces", False, f"{reason} ({path} is {refused})", meaning, f"as root: {remedy}")
    if "\nSeccomp:\t2" in _read("/proc/self/status"):
        remedy = "start the container with --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
        found = f"{reason} (a seccomp filter is in force, as in a container)"
        return Check("user-namespaces", False, found, meaning, remedy)
    return Check("user-namespaces", False, reason, meaning, "run as root, where namespaces may work")


def _cgroups() -> Check:
    meaning = "limits on CPU, memory and I/O of pods and nodes"
    found = cgroups.hierarchies()
    if not found:
        return Check("cgroups", False, "none mounted", meaning, "mount -t cgroup2 none /sys/fs/cgroup")
    names = sorted({c for h in found for c in h.controllers})
    text = f"version {found[0].version}: {', '.join(names)}"
    if not all(os.access(h.base, os.W_OK) for h in found):
        remedy = "run as root; in a container with --privileged"
        return Check("cgroups", False, f"{text}; not writable", meaning, remedy)
    return Check("cgroups", True, text, meaning)


def _disks() -> Check:
    loops = disks.on_loops()
    remedy = "" if loops else "run as root, with loop devices and apt-get install e2fsprogs mount"
    found = "on loop devices" if loops else "in memory"
    return Check("slow disks", loops, found, "pods with disks whose rate can be limited", remedy)


def _bridges() -> Check:
    reason = _links()[1]
    remedy = "" if reason is None else "as root: modprobe -a bridge veth"
    return Check("links", reason is None, reason or "work", "bridges and linked pairs between nodes and pods", remedy)


def _netem() -> Check:
    words, reason = _links()
    found = reason or words or "works"
    remedy = "" if found == "works" else "as root: modprobe sch_netem (a -cloud- kernel lacks it)"
    return Check("netem", found == "works", found, "faults that delay or lose packets", remedy)


def _nft() -> Check:
    path = shutil.which("nft", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    remedy = "" if path else "apt-get install nftables (Oracle Linux: dnf install nftables)"
    return Check("nft", path is not None, path or "not installed", "drops that end by themselves in the kernel", remedy)


def _rdma() -> Check:
    """Which net device and rail belong to which RDMA device."""
    ports = rdma.ports()
    said = ", ".join(map(str, ports)) or "no device"
    said += "; each seen in one namespace" if ports and rdma.exclusive() else ""
    return Check("RDMA", True, said, "faults of RDMA ports, on Kubernetes; local pods have none")


def _resources() -> list[Check]:
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    disk = shutil.disk_usage(".").free / 2**30
    return [
        Check("cores", cores >= 2, f"{cores}", "trainers share them; with one, everything is slow"),
        Check("memory", memory >= MEMORY_GIB_MIN, f"{memory:.1f} GiB", f"a small job needs {MEMORY_GIB_MIN} GiB"),
        Check("disk", disk >= DISK_GIB_MIN, f"{disk:.1f} GiB free here", f"runs are kept: {DISK_GIB_MIN} GiB"),
    ]


def _training() -> Check:
    missing = [name for name in ("torch", "torchft", "torchtitan", "monarch") if importlib.util.find_spec(name) is None]
    found = f"missing: {', '.join(missing)}" if missing else "installed"
    remedy = "pip install 'torchchaos[training]'" if missing else ""
    return Check("training", not missing, found, "the job that comes with torchchaos", remedy)


@functools.cache
def _try(*what: str) -> tuple[str, str | None]:
    """Run a probe: what it said, and, when it failed, the reason."""
    command = [sys.executable, "-I", "-S", _PROBE, *what]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PROBE_S
        )
    except subprocess.TimeoutExpired:
        return "", f"the probe did not end within {PROBE_S} s"
    words = done.stdout.decode(errors="replace").strip().splitlines()
    last = words[-1] if words else ""
    return (last, None) if done.returncode == 0 else ("", last or f"the probe ended with status {done.returncode}")


def _links() -> tuple[str, str | None]:
    return _try("links", json.dumps(sys.path))


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
