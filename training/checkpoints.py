"""Checkpoints of one replica on its own disk: written whole or not at all, and checked when they are loaded.

A file is ``checkpoint-STEP-CHECKSUM``, the state as torch saves it, named by the xxh3 of its bytes. It is written under
another name, forced to the disk and renamed, and only then are older ones removed: once there was a loadable one, there
is one at every moment. The newest ``KEEP`` stay. A write that fails leaves the others as they are.

Not here: when to write (``trainer``). No trainer loads one by itself: TorchFT takes replicas of equal step for replicas
of equal state, and a group that trains a stretch again after all its members were lost passes the step of an older
checkpoint with another state. Who restarts a whole job may give one replica a state to begin with; the others heal.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch
import xxhash
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map_only

KEEP = 2
CHUNK_BYTES = 1 << 20
_NAME = re.compile(r"checkpoint-(?P<step>\d+)-(?P<checksum>[0-9a-f]{32})")

log = logging.getLogger(__name__)


class Damaged(Exception):
    """The file is not what was written."""


class Checkpoints:
    """The checkpoints in ``folder``, which is made if it is missing.

    ``in_write`` is called when the state is written but not yet safe, and may fail the write; when it gives true, the
    file is damaged once it is there.
    """

    def __init__(self, folder: Path, in_write: Callable[[], bool] = lambda: False) -> None:
        self._folder = folder
        self._part = folder / "checkpoint.part"  # one of a life that ended in a write is overwritten
        self._in_write = in_write
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, step: int, state: dict[str, Any]) -> None:
        """Write the state of ``step`` updates and drop the oldest. Raises OSError, and what ``in_write`` raises."""
        try:
            with self._part.open("wb") as file:
                summed = _Summed(file)
                summed.save(state)
                damage = self._in_write()
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with contextlib.suppress(OSError):
                self._part.unlink()
            raise
        path = self._folder / f"checkpoint-{step}-{summed.checksum.hexdigest()}"
        self._part.rename(path)
        self._sync_folder()
        for _, old in self.files()[:-KEEP]:
            old.unlink(missing_ok=True)
        if damage:
            _damage(path)

    def files(self) -> list[tuple[int, Path]]:
        """Steps and files that are there, oldest first."""
        found = ((_NAME.fullmatch(path.name), path) for path in self._folder.iterdir())
        return sorted((int(match["step"]), path) for match, path in found if match)

    def newest(self) -> tuple[int, dict[str, Any]] | None:
        """Step and state of the newest that is whole; the log names those that are not."""
        for step, path in reversed(self.files()):
            try:
                return step, load(path)
            except (Damaged, OSError) as error:
                log.warning("checkpoint of step %d passed over: %s", step, error)
        return None

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def load(path: Path) -> dict[str, Any]:
    """The state in a file that ``write`` wrote. Raises Damaged, or OSError."""
    match = _NAME.fullmatch(path.name)
    assert match is not None, path
    with path.open("rb") as file:
        checksum = xxhash.xxh3_128()
        while chunk := file.read(CHUNK_BYTES):
            checksum.update(chunk)
        if checksum.hexdigest() != match["checksum"]:
            raise Damaged(f"{path}: its bytes have the checksum {checksum.hexdigest()}")
        file.seek(0)
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        return state


def plain(state: Any) -> Any:
    """The state with this rank's part of each sharded tensor in its place."""
    return tree_map_only(DTensor, lambda sharded: sharded.to_local(), state)


class _Summed:
    """What torch writes to a file, summed on the way. It never seeks."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._failure: OSError | None = None
        self.checksum = xxhash.xxh3_128()

    def save(self, state: dict[str, Any]) -> None:
        """Raises OSError where torch would only say that its file ends at an unexpected place."""
        try:
            torch.save(state, self)
        except RuntimeError:
            if self._failure is not None:
                raise self._failure from None
            raise

    def write(self, data: bytes) -> int:
        self.checksum.update(data)
        try:
            return self._file.write(data)
        except OSError as error:
            self._failure = error
            raise

    def flush(self) -> None:
        self._file.flush()


def _damage(path: Path) -> None:
    """Flip one bit in the middle, as on a disk that forgets."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
