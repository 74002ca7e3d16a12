"""The ledger: what this agent is about to do, on disk before it is done, so that a successor can undo it.

One file per lease, written aside, fsynced and renamed, so it is whole or absent. It is removed once the revert is
proven. A folder in memory (/run, /dev/shm) is right: kernel state does not outlive a boot either, and an fsync there
costs nothing. Entries of an earlier boot are dropped unread. One agent at a time: the folder is locked.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from chaos.agent.wire import Grant

log = logging.getLogger(__name__)

_ASIDE = "."
_SUFFIX = ".lease"


class LedgerHeld(Exception):
    """Another agent lives on this ledger."""


class Entry(msgspec.Struct, frozen=True):
    """A lease, and the state that was there before the first lease on the same resource."""

    boot: str
    grant: Grant
    before: dict[str, str]


class Ledger:
    """Keeps the folder's lock until the process ends."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LedgerHeld(f"another agent holds the ledger {folder}") from error
        for unfinished in folder.glob(f"{_ASIDE}*"):
            unfinished.unlink()

    def write(self, grant: Grant, before: dict[str, str]) -> None:
        """On disk when this returns."""
        aside = _ASIDE + grant.lease
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600, dir_fd=self._fd)
        with open(fd, "wb") as file:
            file.write(msgspec.json.encode(Entry(self._boot, grant, before)))
            file.flush()
            os.fsync(fd)
        os.rename(aside, grant.lease + _SUFFIX, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        os.fsync(self._fd)

    def remove(self, lease: str) -> None:
        os.unlink(lease + _SUFFIX, dir_fd=self._fd)

    def entries(self) -> Iterator[Entry]:
        """What a predecessor left. Entries of an earlier boot are removed; one that cannot be read is left and told."""
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            try:
                entry = msgspec.json.decode(path.read_bytes(), type=Entry)
            except msgspec.MsgspecError as error:
                log.error("%s is not given back, its entry cannot be read: %s", path, error)
                continue
            if entry.boot == self._boot:
                yield entry
            else:
                path.unlink()
