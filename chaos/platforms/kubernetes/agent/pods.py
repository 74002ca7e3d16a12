"""Finds what a life of a member is on this node: its processes by the pod's unique id, its cgroups, its interfaces.

Nothing is built from names. A process belongs to a pod when the pod's id stands in its cgroup's path, and to this node
when that path begins as the agent's own does.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from chaos.agent.linux.freeze import members, started
from chaos.agent.linux.resource import NotInForce
from chaos.model.injections import Interface
from chaos.model.site import Link, MainProcess, Namespace, Nic, Site
from chaos.platforms.kubernetes.entry import SCRATCH
from chaos.platforms.kubernetes.order import Target

_PODS = re.compile(r"^(.*?/kubepods[^/]*)/")
_CONTROLLERS = ("cpu", "memory", "blkio")


class NodePods:
    """The pods of the node whose kubelet started this process."""

    def __init__(self) -> None:
        roots = {match[1] for path in _groups("self").values() if (match := _PODS.match(f"{path}/"))}
        assert len(roots) == 1, f"the agent is not in a pod of one kubelet: {roots}"
        (self._root,) = roots

    def find(self, target: Target, pid: int) -> int:
        """The process that has `pid` in the target's pod, as this node numbers it. NotInForce when it is gone."""
        for number in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if self._belongs(number, target.uid) and _pid_in_pod(number) == pid:
                    return int(number)
        raise NotInForce(f"process {pid} of pod {target.pod} ({target.uid}) is not on this node any more")

    def container(self, target: Target) -> list[int]:
        """Every process of the container in which the target's main process is."""
        return members(next(iter(self._directories(self.find(target, target.pid)).values())))

    def site(self, target: Target) -> Site:
        """What the target is to an injection."""
        pid = self.find(target, target.pid)
        ticks = started(pid)
        if ticks is None:
            raise NotInForce(f"the main process of {target.pod} has ended")
        groups = {name: _up_to(path, target.uid) for name, path in self._directories(pid).items()}
        folder = f"/proc/{pid}/root{SCRATCH}/disk"
        return Site(
            name=target.member,
            incarnation=target.incarnation,
            process=MainProcess(pid, ticks),
            nics={Interface(role): _nic(pid, name) for role, name in target.nics.items()},
            groups={name: path for name, path in groups.items() if name},
            unified=groups.get("") if len(groups) == 1 else None,
            folder=folder if _in_memory(pid) else None,
        )

    def _belongs(self, number: str, uid: str) -> bool:
        paths = _groups(number).values()
        return any(path.startswith(f"{self._root}/") and _names(uid).search(path) for path in paths)

    def _directories(self, pid: int) -> dict[str, str]:
        """Controller of version 1, or "" for version 2 -> the directory of the process's group."""
        groups, found = _groups(str(pid)), {}
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields = line.split()
            kind, root, mount, options = fields[fields.index("-") + 1], fields[3], fields[4], fields[-1].split(",")
            wanted = [""] if kind == "cgroup2" else [c for c in _CONTROLLERS if c in options and kind == "cgroup"]
            for controller in wanted:
                path = os.path.normpath(f"{mount}/{os.path.relpath(groups.get(controller, '/'), root)}")
                if path.startswith(f"{mount}/") and os.path.isdir(path) and controller not in found:
                    found[controller] = path
        if not found:
            raise NotInForce("no cgroups are mounted in the agent's pod: mount /sys/fs/cgroup of the node there")
        return found


def _names(uid: str) -> re.Pattern[str]:
    """A pod's id in a path: with systemd, dashes are underscores."""
    return re.compile(uid.replace("-", "[-_]"))


def _groups(number: str) -> dict[str, str]:
    """Controller of version 1, or "" for version 2 -> path of a process's group."""
    groups = {}
    for line in Path(f"/proc/{number}/cgroup").read_text().splitlines():
        _hierarchy, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _up_to(path: str, uid: str) -> str:
    """The pod's group, of one below it."""
    head, tail = os.path.split(path)
    return path if _names(uid).search(tail) or head == path else _up_to(head, uid)


def _pid_in_pod(number: str) -> int:
    status = Path(f"/proc/{number}/status").read_text()
    return int(status.partition("\nNSpid:")[2].partition("\n")[0].split()[-1])


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
