"""Full disks: one file without a name on the target's file system, as large as it takes.

The agent holds it open; the kernel frees it when the agent closes it or ends, by whatever signal. So nothing of it can
stay behind, and nothing needs to be found again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from chaos.agent.linux.resource import Gone, Lease, NotInForce, Resource, State
from chaos.model.injections import DiskFill

FILL_BYTES_MAX = 64 << 30
_CHUNK_BYTES, _BLOCK_BYTES = 256 << 20, 4096
_SLACK_BYTES = 1 << 20
"""How much more than asked for may be free: file systems keep books of what they allocate."""
_TRIES = 5


class Filling(Resource):
    """The free space of the file system that holds `folder`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._fd: int | None = None
        self.key = f"disk {folder}"

    def before(self) -> State:
        if os.stat(self._folder).st_dev == os.stat("/").st_dev:
            raise NotInForce(f"{self._folder} is on the machine's own disk: give the target a file system of its own")
        return {"free": str(self._free())}

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        wishes = [lease.grant.injection for lease in leases]
        leave = min((wish.leave_bytes for wish in wishes if isinstance(wish, DiskFill)), default=None)
        if leave is None:
            self._close()
            return f"{self._free()} bytes free, {before['free']} were before"
        full = False
        for _try in range(_TRIES):
            free = self._free()
            if full or (free <= leave + _SLACK_BYTES and (free >= leave - _SLACK_BYTES or self._size() == 0)):
                said = ", which the file system keeps for itself" if full and free > _SLACK_BYTES else ""
                return f"{free} bytes free{said}, {self._size()} are filled"
            full = not self._resize(max(0, self._size() + free - leave))
        raise NotInForce(f"{self._free()} bytes are free, {leave} should be left")

    def _free(self) -> int:
        try:
            found = os.statvfs(self._folder)
        except FileNotFoundError as error:
            raise Gone(f"{self._folder} is gone") from error
        return found.f_bfree * found.f_frsize

    def _size(self) -> int:
        return 0 if self._fd is None else os.fstat(self._fd).st_blocks * 512

    def _resize(self, size: int) -> bool:
        """False when not one block more is to be had; ext4 counts blocks as free that it gives to nobody."""
        if size > FILL_BYTES_MAX:
            raise NotInForce(f"it would take {size} bytes to fill {self._folder}; at most {FILL_BYTES_MAX} are taken")
        if os.major(os.stat(self._folder).st_dev) == 0 and size - self._size() > _memory_available() // 2:
            raise NotInForce(
                f"{self._folder} is in memory, of which filling it would take more than half: give it a size"
            )
        if self._fd is None:
            self._fd = os.open(self._folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        at = os.fstat(self._fd).st_size
        if size < at:
            os.ftruncate(self._fd, size)
        chunk = _CHUNK_BYTES
        while at < size and chunk >= _BLOCK_BYTES:
            try:
                os.posix_fallocate(self._fd, at, min(chunk, size - at))
                at += min(chunk, size - at)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                chunk //= 2
        return at >= size

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _memory_available() -> int:
    """Bytes of memory that the machine could still give to programs."""
    with open("/proc/meminfo") as file:
        (kib,) = (line.split()[1] for line in file if line.startswith("MemAvailable:"))
    return int(kib) * 1024
