"""Starting pods, in namespaces or as plain processes, and clearing up after each life.

Used by the host only. `Separate` gives a pod everything of its own; `Plain` gives it an address in 127.0.0.0/8, a
temporary folder and a mark by which all its processes are found. Restarting is the host's business.
"""

from __future__ import annotations

import marshal
import os
import re
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from chaos.model.injections import Interface
from chaos.model.site import MainProcess, Nic, Site
from chaos.model.workload import fill
from chaos.platforms.local import cgroups, disks, kernel, owner, processes
from chaos.platforms.local.spec import Grant, Member, Spec

_ENTER = str(Path(__file__).with_name("enter.py"))
_GROUP_END_S = 0.1


@dataclass
class Life:
    """One life of a member. The caller closes `pidfd`; `status` reads what went wrong, or end-of-file once it runs."""

    member: Member
    incarnation: int
    address: str
    pid: int
    pidfd: int
    status: int
    started_mono_s: float
    mark: str
    site: Site
    """What the pod is to an injection."""
    deleted: bool = False
    groups: list[str] = field(default_factory=list)
    folder: str | None = None


class Ground(Protocol):
    """Where pods live."""

    def start(self, member: Member, incarnation: int, node: str) -> Life:
        """Start the member's command in a new pod."""

    def nodes(self) -> dict[str, int]:
        """Each node's network namespace, as an open file of this process."""

    def node_sites(self) -> dict[str, Site]:
        """What each node is to an injection."""

    def clear(self, life: Life) -> None:
        """Its main process is gone: end what is left of the pod, return when all of it is gone."""


class Separate:
    """Pods in namespaces. Turns the calling process's mount, network, host-name and IPC namespaces into new ones."""

    def __init__(self, spec: Spec, grant: Grant) -> None:
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC)
        kernel.mounts_private()
        kernel.mount_proc()
        kernel.sethostname("torchchaos")
        from chaos.platforms.local import fabric  # Takes 0.3 s to import; plain processes need no links.

        self._fabric_module = fabric
        self._spec, self._owner = spec, grant.owner
        self._fabric = fabric.Fabric(spec.nodes())
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._groups = {node: cgroups.create_below(grant.groups, node, leaf=False) for node in spec.nodes()}
        self._started = 0
        loops = spec.isolation == "namespaces" and disks.on_loops()
        disks.mount([spec.disk(member.name) for member in spec.members], loops)
        first = {member.name: self._address(number) for number, member in enumerate(spec.members)}
        self._names = Names(spec.platform_dir(), first)

    def start(self, member: Member, incarnation: int, node: str) -> Life:
        number, self._started = self._started, self._started + 1
        network = self._fabric.nodes[node].pod(number)
        try:
            address = self._address(number)
            self._names.put(member.name, address)
            groups = cgroups.create_below(self._groups[node], f"{member.name}.{incarnation}", leaf=True)
            pod = {"net": network.fd, "groups": groups, "keep": self._spec.keep, "files": self._names.files}
            values = {"address": address, "host": member.name, "data_interface": self._fabric_module.DATA}
            hosts = {other.name: other.name for other in self._spec.members}
            environ = {"TMPDIR": "/tmp"}
            os.set_inheritable(network.fd, True)
            kernel.unshare(kernel.CLONE_NEWPID)  # Children to come start a new pid namespace each ...
            try:
                life = _spawn(self._spec, self._owner, member, incarnation, pod, values, hosts, environ)
            finally:
                kernel.setns(self._own_pids, kernel.CLONE_NEWPID)  # ... until this.
            nics = self._fabric.nodes[node].pod_nics(number, network, f"/proc/{life.pid}/ns/net")
        finally:
            network.close()
        life.groups = groups
        life.site = _site(life, nics, groups)
        return life

    def nodes(self) -> dict[str, int]:
        return {name: node.namespace.fd for name, node in self._fabric.nodes.items()}

    def node_sites(self) -> dict[str, Site]:
        sites = {}
        for name, node in self._fabric.nodes.items():
            groups, unified = cgroups.by_controller(self._groups[name])
            sites[name] = Site(name, nics=node.nics(), groups=groups, unified=unified)
        return sites

    def clear(self, life: Life) -> None:
        for group in life.groups:
            with suppress(OSError):  # The keeper removes it at the end.
                cgroups.remove(group, within_s=_GROUP_END_S)

    def _address(self, number: int) -> str:
        return self._fabric_module.address(self._fabric_module.CONTROL, number)


class Plain:
    """Pods as marked process groups."""

    def __init__(self, spec: Spec, grant: Grant) -> None:
        assert grant.block is not None and grant.folder is not None
        kernel.adopt_orphans()
        self._spec, self._grant = spec, grant
        self._addresses = {member.name: f"{grant.block}.{1 + n}" for n, member in enumerate(spec.members)}

    def start(self, member: Member, incarnation: int, node: str) -> Life:
        address = self._addresses[member.name]
        folder = f"{self._grant.folder}/{address.rpartition('.')[2]}.{incarnation}"
        os.mkdir(folder, 0o700)
        values = {"address": address, "host": address, "data_interface": "lo"}
        pod = {"net": None, "parent": os.getpid()}
        environ = {"TMPDIR": folder}
        life = _spawn(self._spec, self._grant.owner, member, incarnation, pod, values, self._addresses, environ)
        life.folder = folder
        return life

    def nodes(self) -> dict[str, int]:
        return {}

    def node_sites(self) -> dict[str, Site]:
        return {}

    def clear(self, life: Life) -> None:
        left = processes.kill_all(processes.of_pod(life.mark, life.pid))
        if left:
            raise TimeoutError(f"processes {left} of {life.member.name} outlived SIGKILL by {processes.KILL_S} s")
        if life.folder is not None:
            shutil.rmtree(life.folder, ignore_errors=True)


class Names:
    """The files by which pods resolve names: one set for all pods, in the run's folder.

    The hosts file is bind-mounted into every pod, so it is never replaced. Its lines have a fixed width and one write
    changes one line: a reader sees the old address or the new one.
    """

    def __init__(self, folder: Path, addresses: dict[str, str]) -> None:
        head = "127.0.0.1       localhost\n"
        lines = [self._line(name, address) for name, address in addresses.items()]
        self._offsets: dict[str, int] = {}
        offset = len(head)
        for name, line in zip(addresses, lines, strict=True):
            self._offsets[name] = offset
            offset += len(line)
        texts = {"hosts": head + "".join(lines), "resolv.conf": "# No name servers: names come from /etc/hosts.\n"}
        with suppress(FileNotFoundError):
            switch = Path("/etc/nsswitch.conf").read_text()
            texts["nsswitch.conf"] = re.sub(r"(?m)^hosts:.*$", "hosts: files", switch)
        self.files = {}
        for name, text in texts.items():
            (folder / name).write_text(text)
            self.files[f"/etc/{name}"] = str(folder / name)
        self._fd = os.open(folder / "hosts", os.O_WRONLY | os.O_CLOEXEC)

    def put(self, name: str, address: str) -> None:
        os.pwrite(self._fd, self._line(name, address).encode(), self._offsets[name])

    def _line(self, name: str, address: str) -> str:
        return f"{address:<15} {name}\n"


def _spawn(
    spec: Spec,
    owner_name: str,
    member: Member,
    incarnation: int,
    pod: dict[str, Any],
    values: dict[str, str],
    hosts: dict[str, str],
    environ: dict[str, str],
) -> Life:
    """Start `enter` as a child in a session of its own, its output in the life's log."""
    scratch = spec.scratch(member.name)
    disk = spec.disk(member.name)
    disk.mkdir(parents=True, exist_ok=True)
    folder = scratch.parent
    values |= {"python": spec.python, "member": member.name, "incarnation": str(incarnation)}
    values |= {"events": str(folder / f"events-{incarnation}.jsonl"), "scratch": str(scratch)}
    values |= {f"host:{name}": host for name, host in hosts.items()}
    mark = f"{owner_name}/{member.name}/{incarnation}"
    status, status_in_pod = os.pipe()
    log = os.open(folder / f"{incarnation}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.set_inheritable(status_in_pod, True)
        pod |= {"member": member.name, "status": status_in_pod, "folder": str(scratch)}
        pod["command"] = [fill(part, values) for part in member.command]
        actions: list[Any] = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
        argv = [spec.python, "-I", "-S", _ENTER, marshal.dumps(pod).hex()]
        full = {**os.environ, **spec.env, **environ, owner.MARKER: mark}
        started = time.monotonic()
        pid = os.posix_spawn(
            spec.python, argv, full, file_actions=actions, setsid=True, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
        )
    finally:
        os.close(log)
        os.close(status_in_pod)
    os.set_blocking(status, False)
    site = Site(member.name, incarnation, folder=str(disk))
    return Life(member, incarnation, values["address"], pid, os.pidfd_open(pid), status, started, mark, site)


def _site(life: Life, nics: dict[Interface, Nic], paths: list[str]) -> Site:
    """What a pod in namespaces is to an injection, in numbers of the host's pid namespace."""
    stat = owner.stat(life.pid)
    assert stat is not None, "a child that was not waited for has a stat"
    groups, unified = cgroups.by_controller(paths)
    process = MainProcess(life.pid, stat[3])
    return msgspec.structs.replace(life.site, process=process, nics=nics, groups=groups, unified=unified)
