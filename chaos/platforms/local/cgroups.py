"""Cgroup directories of a cluster: one at the top, one per node below it, one per life of a pod below its node.

Version 2 where its controllers are mounted, else the version 1 hierarchies in `CONTROLLERS`. On version 2 the top
stands at the root of the mount, because controllers cannot be switched on below a group that holds processes; a
controller that the root keeps from its children is switched on there and stays on. On version 1 it stands below the
caller's own group. Weights are set at the top, limits nowhere. Standard library only: the keeper uses it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.platforms.local.owner import PREFIX, owner_of

CONTROLLERS = ("cpu", "memory", "freezer", "pids", "blkio", "io")
WEIGHTS = {"cpu.shares": "8192", "cpu.weight": "800"}
"""Of a cluster's top, in version 1 and 2: eight times that of one process of the machine, which is the default."""
REMOVE_S = 5.0
_RETRY_S = 0.01


@dataclass(frozen=True)
class Hierarchy:
    """A mounted hierarchy: where it is mounted, where a cluster's top goes, what it controls."""

    version: int
    mount: str
    base: str
    controllers: tuple[str, ...]


def hierarchies() -> list[Hierarchy]:
    """What is mounted here and of use: one of version 2, or some of version 1, or nothing."""
    own = _own_groups()
    first: list[Hierarchy] = []
    with open("/proc/self/mountinfo") as file:
        lines = [line.split() for line in file]
    for fields in lines:
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        root, mount = fields[3], fields[4].encode().decode("unicode_escape")
        if kind == "cgroup2":
            controllers = tuple(c for c in _read(f"{mount}/cgroup.controllers").split() if c in CONTROLLERS)
            if controllers:
                return [Hierarchy(2, mount, mount, controllers)]
        elif kind == "cgroup":
            controllers = tuple(o for o in options if o in CONTROLLERS)
            below = os.path.relpath(own.get(options[-1], "/"), root) if controllers else "."
            if controllers and mount not in [h.mount for h in first]:
                base = mount if below.startswith("..") else os.path.normpath(os.path.join(mount, below))
                first.append(Hierarchy(1, mount, base, controllers))
    return first


def create(owner: str) -> list[str]:
    """Make the top directories of `owner`'s cluster; only where this process may write, so possibly none."""
    made = []
    for hierarchy in hierarchies():
        path = f"{hierarchy.base}/{PREFIX}{owner}"
        try:
            if hierarchy.version == 2:
                _switch_on(hierarchy.base, hierarchy.controllers)
            os.mkdir(path)
        except OSError:
            continue
        if hierarchy.version == 2:
            _switch_on(path, hierarchy.controllers)
        _weigh(path)
        made.append(path)
    return made


def create_below(parents: list[str], name: str, leaf: bool) -> list[str]:
    """Make `name` below each parent. A leaf takes processes; in version 2 only a leaf may."""
    made = []
    for parent in parents:
        path = f"{parent}/{name}"
        os.mkdir(path)
        if not leaf and os.path.exists(f"{path}/cgroup.subtree_control"):
            _switch_on(path, CONTROLLERS)
        made.append(path)
    return made


def by_controller(paths: list[str]) -> tuple[dict[str, str], str | None]:
    """Groups made by `create_below`: version 1 controller -> its group, and the group of version 2 if it is one."""
    first: dict[str, str] = {}
    for path in paths:
        for hierarchy in hierarchies():
            if path.startswith(f"{hierarchy.mount}/"):
                if hierarchy.version == 2:
                    return {}, path
                first.update(dict.fromkeys(hierarchy.controllers, path))
    return first, None


def remove(top: str, within_s: float = REMOVE_S) -> None:
    """Remove a tree of groups. Refused while a process is in one: tried again for `within_s`, then OSError."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            for path, _names, _files in os.walk(top, topdown=False):
                os.rmdir(path)
            return
        except FileNotFoundError:
            continue
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)


def tops() -> Iterator[tuple[str, str]]:
    """Every cluster's top directory on this machine, and its owner."""
    for hierarchy in hierarchies():
        for path, names, _files in os.walk(hierarchy.mount):
            for name in list(names):
                owner = owner_of(name)
                if owner is not None:
                    names.remove(name)
                    yield f"{path}/{name}", owner


def _weigh(path: str) -> None:
    """Where the machine is busy, let a whole job count for more than one process of the machine does."""
    for name, weight in WEIGHTS.items():
        try:
            with open(f"{path}/{name}", "r+") as file:
                file.write(weight)
        except OSError:
            continue


def _switch_on(path: str, controllers: tuple[str, ...]) -> None:
    """Give the children of `path` what controllers there are; one refusal does not stop the others."""
    there = set(_read(f"{path}/cgroup.controllers").split()) - set(_read(f"{path}/cgroup.subtree_control").split())
    for controller in there & set(controllers):
        try:
            with open(f"{path}/cgroup.subtree_control", "w") as file:
                file.write(f"+{controller}")
        except OSError:
            continue


def _own_groups() -> dict[str, str]:
    """Controller of version 1 -> the calling process's group."""
    own = {}
    for line in _read("/proc/self/cgroup").splitlines():
        _number, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    return own


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
