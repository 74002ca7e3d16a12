"""Finds what a life of a member is on this node: its processes by the pod's unique id, its cgroups, its interfaces.

Nothing is built from names. A process belongs to a pod when the pod's id stands in its cgroup's path, and to this node
when that path begins as the agent's own does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from chaos.agent.linux.freeze import members, started
from chaos.agent.linux.resource import NotInForce
from chaos.model.injections import (
    Drop,
    Interface,
    KernelInjection,
    LinkDown,
    PortDown,
    PortGone,
    PortShape,
    Shape,
)
from chaos.model.site import Link, MainProcess, Namespace, Nic, Site
from chaos.platforms.kubernetes.entry import SCRATCH
from chaos.platforms.kubernetes.order import Target

_ALL_PODS = re.compile(r"^(.*?/(?:[^/]*-)?kubepods[^/]*)/")
"""Where the kubelet has a root of its own, as in kind, systemd's name of the slice begins with that."""
_A_POD = re.compile(r"pod[0-9a-f]{8}[-_]")
_UID = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
_CONTROLLERS = ("cpu", "memory", "blkio", "pids")
_OWN_ONLY = "blkio"
"""Version 1 of it holds for the processes of a group and not for those of groups below: the container's own is set."""
_ON_DISK = "/etc/hosts"
"""The kubelet's file: it lies where containers' layers and volumes without a medium lie, on the node's disk."""


class NodePods:
    """The pods of the node whose kubelet started this process."""

    def __init__(self) -> None:
        tops = {match[1] for path in _directories(os.getpid()).values() if (match := _ALL_PODS.match(f"{path}/"))}
        if not tops:
            raise NotInForce("the agent is in no pod's cgroup, or /sys/fs/cgroup of the node is not mounted in its pod")
        self._top = min(tops)
        self._known: dict[str, str] = {}

    def find(self, target: Target, pid: int) -> int:
        """The process that has `pid` in the target's pod, as this node numbers it. NotInForce when it is gone."""
        if not target.uid:
            raise NotInForce(f"{target.member} is a node: aim at its members")
        for number in members(self._group(target.uid)):
            with suppress(OSError):
                if _pid_in_pod(number) == pid:
                    return number
        raise NotInForce(f"process {pid} of pod {target.pod} ({target.uid}) is not on this node any more")

    def container(self, pid: int) -> list[int]:
        """Every process of the container that a process is in."""
        return members(next(iter(_directories(pid).values())))

    def running(self) -> Iterator[tuple[str, int]]:
        """Each pod's id, and a process of it."""
        for path, names, _files in os.walk(self._top):
            for name in names:
                if (uid := _UID.search(name)) and (pids := members(f"{path}/{name}")):
                    yield uid[1].replace("_", "-"), pids[0]
            names[:] = [name for name in names if not _A_POD.search(name)]

    def revived(self, target: Target) -> list[int] | None:
        """Processes in the pod but for its first, which only holds the pod's namespaces; None once the pod is gone."""
        group = self._group(target.uid)
        return [pid for pid in members(group) if not _is_first(pid)] if group else None

    def site(self, target: Target, injection: KernelInjection) -> Site:
        """What the target is to an injection: of its interfaces those that it is about, since to look takes time."""
        pid = self.find(target, target.pid)
        ticks = started(pid)
        if ticks is None:
            raise NotInForce(f"the main process of {target.pod} has ended")
        own = _directories(pid)
        groups = {name: path if name == _OWN_ONLY else _up_to(path, target.uid) for name, path in own.items()}
        folder = f"/proc/{pid}/root{SCRATCH}/disk"
        return Site(
            name=target.member,
            incarnation=target.incarnation,
            process=MainProcess(pid, ticks),
            nics={
                role: _nic(self._sandbox(target, pid), target.nics[role.value])
                for role in _roles(injection)
                if role.value in target.nics
            },
            groups={name: path for name, path in groups.items() if name},
            unified=groups.get("") if len(groups) == 1 else None,
            folder=folder if _in_memory(pid) else None,
            disk=f"/proc/{pid}/root{_ON_DISK}",
        )

    def _sandbox(self, target: Target, pid: int) -> int:
        """The process that holds the pod's namespaces: they outlive the container, and so does what is done to them."""
        inside = set(self.container(pid))
        return next((other for other in members(self._group(target.uid)) if other not in inside), pid)

    def _group(self, uid: str) -> str:
        """The pod's group, below one of its class of service; empty once it is gone. To look for it takes time."""
        if not os.path.isdir(self._known.get(uid, "")):
            self._known[uid] = next(self._look_for(uid), "")
        return self._known[uid]

    def _look_for(self, uid: str) -> Iterator[str]:
        for path, names, _files in os.walk(self._top):
            yield from (f"{path}/{name}" for name in names if _names(uid).search(name))
            names[:] = [name for name in names if not _A_POD.search(name)]


def _roles(injection: KernelInjection) -> tuple[Interface, ...]:
    match injection:
        case LinkDown(interface=interface) | Shape(interface=interface):
            return (interface,)
        case Drop() | PortDown() | PortShape() | PortGone():
            return (Interface.CONTROL,)  # Any one leads to the pod's network namespace.
    return ()


def _directories(pid: int) -> dict[str, str]:
    """Controller of version 1, or "" for version 2 -> the directory of the process's group."""
    groups, found = _groups(pid), {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        kind, root, mount, options = fields[fields.index("-") + 1], fields[3], fields[4], fields[-1].split(",")
        wanted = [""] if kind == "cgroup2" else [c for c in _CONTROLLERS if c in options and kind == "cgroup"]
        for controller in wanted:
            path = os.path.normpath(f"{mount}/{os.path.relpath(groups.get(controller, '/'), root)}")
            if path.startswith(f"{mount}/") and os.path.isdir(path) and controller not in found:
                found[controller] = path
    return found


def _names(uid: str) -> re.Pattern[str]:
    """A pod's id in a path: with systemd, dashes are underscores."""
    return re.compile(uid.replace("-", "[-_]"))


def _groups(pid: int) -> dict[str, str]:
    """Controller of version 1, or "" for version 2 -> path of a process's group."""
    groups = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _hierarchy, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _up_to(path: str, uid: str) -> str:
    """The pod's group, of one below it."""
    head, tail = os.path.split(path)
    return path if _names(uid).search(tail) or head == path else _up_to(head, uid)


def _pid_in_pod(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nNSpid:")[2].partition("\n")[0].split()[-1])


def _is_first(pid: int) -> bool:
    try:
        return _pid_in_pod(pid) == 1
    except OSError:
        return True  # It has just ended.


def _nic(pid: int, name: str) -> Nic:
    """An interface of a pod; where its other end lies in the node's own namespace, that is the cable's far end."""
    link = Link(Namespace(f"/proc/{pid}/ns/net", os.stat(f"/proc/{pid}/ns/net").st_ino), name)
    inside = f"/proc/{pid}/root/sys/class/net/{name}"
    try:
        index, other = (Path(f"{inside}/{file}").read_text().strip() for file in ("ifindex", "iflink"))
    except OSError as error:
        raise NotInForce(f"the pod has no interface {name}: {error.strerror}") from error
    for far in os.listdir("/sys/class/net"):
        with suppress(OSError):
            numbers = [Path(f"/sys/class/net/{far}/{file}").read_text().strip() for file in ("ifindex", "iflink")]
            if other != index and numbers == [other, index]:
                return Nic(link, Link(Namespace("/proc/self/ns/net", os.stat("/proc/self/ns/net").st_ino), far))
    return Nic(link)


def _in_memory(pid: int) -> bool:
    """Whether the pod's folder for disk faults is a file system of its own, and not the node's disk."""
    lines = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    return any(fields[4] == SCRATCH and fields[fields.index("-") + 1] == "tmpfs" for fields in lines)
