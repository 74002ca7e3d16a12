"""What dead runs may have left on this machine, found and removed.

A keeper removes all of its cluster; only one that was itself killed cannot. Then empty cgroups may stay, and in
clusters of plain processes a pod's children and temporary folder. What belongs to a living keeper, or to one that
cannot be seen from here (another pid namespace, such as a container's), is never touched.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Literal

import msgspec

from chaos.platforms.local import cgroups, owner, processes

REMOVE_S = 5.0


class Leftover(msgspec.Struct, frozen=True):
    """One thing of a dead run: a cgroup's path, a folder's path, or a process's pid."""

    kind: Literal["cgroup", "folder", "process"]
    name: str
    owner: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def find() -> list[Leftover]:
    """Everything left of runs whose keeper is surely gone; processes first, since they hold the rest."""
    found = [Leftover("process", str(pid), mark.partition("/")[0]) for pid, mark in owner.marked()]
    found += [Leftover("cgroup", path, name) for path, name in cgroups.tops()]
    folder = tempfile.gettempdir()
    named = ((f"{folder}/{name}", owner.owner_of(name)) for name in os.listdir(folder))
    found += [Leftover("folder", path, name) for path, name in named if name is not None and _mine(path)]
    return [leftover for leftover in found if owner.is_dead(leftover.owner)]


def remove(leftovers: list[Leftover]) -> list[Leftover]:
    """Remove them, as found. What could not be removed is returned."""
    return [leftover for leftover in leftovers if not _removed(leftover)]


def _removed(leftover: Leftover) -> bool:
    if not owner.is_dead(leftover.owner):
        return False
    try:
        match leftover.kind:
            case "process":
                return not processes.kill_all(_is(int(leftover.name), leftover.owner), within_s=REMOVE_S)
            case "cgroup":
                cgroups.remove(leftover.name, within_s=REMOVE_S)
            case "folder":
                shutil.rmtree(leftover.name)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _is(pid: int, name: str) -> Callable[[int], bool]:
    return lambda other: other == pid and (owner.marker(other) or "").startswith(f"{name}/")


def _mine(path: str) -> bool:
    """Whether this user made it: a folder of that name that someone else put there is not ours to remove."""
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except FileNotFoundError:
        return False
