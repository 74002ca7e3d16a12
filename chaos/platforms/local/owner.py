"""Who owns what: the name that everything of one cluster carries, and how to tell whether its keeper still lives.

An owner is `<pid namespace>-<pid>-<start time>` of a keeper: no two keepers of one boot share it, and a reused pid does
not pass for a living keeper. Cgroups and folders carry it in their names, processes in their environment. Standard
library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

PREFIX = "torchchaos-"
MARKER = "TORCHCHAOS_POD"
"""Environment variable of every process of a pod: `<owner>/<member>/<incarnation>`."""

_NAME = re.compile(re.escape(PREFIX) + r"(\d+-\d+-\d+)(\..*)?")


def _pid_namespace() -> str:
    return re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))


def stat(pid: int) -> tuple[str, int, int, int] | None:
    """State letter, parent, session and start time (clock ticks since boot) of a process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19])


def new_owner() -> str:
    """The calling keeper's name."""
    own = stat(os.getpid())
    assert own is not None
    return f"{_pid_namespace()}-{os.getpid()}-{own[3]}"


def owner_of(name: str) -> str | None:
    """The owner in a cgroup's or folder's name; None when it is not one of ours."""
    match = _NAME.fullmatch(name)
    return match.group(1) if match else None


def is_dead(owner: str) -> bool:
    """Whether the keeper is surely gone. One from another pid namespace is never surely gone: it cannot be seen.

    Nor is what is no keeper's name: a pod of a cluster on this machine has a marker of its own.
    """
    namespace, _, life = owner.partition("-")
    pid, _, started = life.partition("-")
    if namespace != _pid_namespace() or not (pid.isdecimal() and started.isdecimal()):
        return False
    found = stat(int(pid))
    return found is None or found[0] in "ZX" or found[3] != int(started)


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def marker(pid: int) -> str | None:
    """The pod mark in a process's environment; None when it has none, is gone, or is not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read()
    except OSError:
        return None
    for line in environ.split(b"\0"):
        if line.startswith(MARKER.encode() + b"="):
            return line.partition(b"=")[2].decode(errors="replace")
    return None


def marked() -> Iterator[tuple[int, str]]:
    """Every living process with a pod mark, and the mark."""
    for pid in pids():
        mark = marker(pid)
        if mark is not None:
            yield pid, mark
