"""Ends living runs on this machine: each runner is asked to give everything back, and killed if it does not.

A run is found by its keeper; its runner is the keeper's parent that holds the other end of the keeper's life line.
Runs of other users, and those in other pid namespaces, are not seen.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from chaos.platforms.local import owner

END_S = 60.0
KILL_S = 10.0

_KEEPER = "chaos/platforms/local/keeper.py"


class Living(msgspec.Struct, frozen=True):
    """A run that goes on: its name, and its processes."""

    name: str
    keeper: int
    runner: int


def find() -> list[Living]:
    return [run for pid in owner.pids() for run in _kept_by(pid)]


def end(run: Living) -> str:
    """Nothing of it is left when this returns; how it ended."""
    try:
        keeper, runner = os.pidfd_open(run.keeper), os.pidfd_open(run.runner)
    except ProcessLookupError:
        return "ended by itself"
    try:
        for number, within_s in ((signal.SIGTERM, END_S), (signal.SIGKILL, KILL_S)):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(runner, number)
            if select.select([keeper], [], [], within_s)[0]:
                return "ended in order" if number == signal.SIGTERM else "killed, since it did not end"
    finally:
        os.close(keeper)
        os.close(runner)
    return f"was not gone within {END_S + KILL_S:g} s: chaos clean tells what is left"


def _kept_by(pid: int) -> Iterator[Living]:
    with suppress(OSError, ValueError):
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if len(arguments) < 7 or not arguments[3].endswith(_KEEPER.encode()):
            return
        line = os.readlink(f"/proc/{pid}/fd/{int(arguments[4])}")
        found = owner.stat(pid)
        if found is not None and line in _links(found[1]):
            yield Living(Path(os.fsdecode(arguments[6])).parents[1].name, pid, found[1])


def _links(pid: int) -> set[str]:
    """What the open files of a process are."""
    links = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(OSError):
            links.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return links
