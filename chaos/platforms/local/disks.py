"""A disk of its own for each member, so that one that fills up or is slow harms nobody else.

On a loop device where root has them: a rate can be set for it, as for a real disk. Else in memory. An image loses its
name once it is mounted, so the kernel frees it with the mount, whoever dies; nothing has to be cleared up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from chaos.platforms.local import kernel

DISK_BYTES = 1 << 30
_MAKE_S = 20.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_FORMAT = ("-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard")
"""Nobody reads it after a crash, so it keeps no journal; nothing of it is reserved for root, who runs the pods."""


def on_loops() -> bool:
    """Whether this machine can have disks on loop devices."""
    programs = (shutil.which(program, path=_PATH) for program in ("mkfs.ext4", "mount"))
    return os.geteuid() == 0 and os.access("/dev/loop-control", os.R_OK | os.W_OK) and all(programs)


def mount(folders: list[Path], loops: bool) -> None:
    """Put a disk at each folder, for the present mount namespace; in memory when a loop device is refused after all."""
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    images = [_Image(folder) for folder in folders] if loops else []
    mounted = [image.mounted() for image in images]
    if not loops or not all(mounted):
        for folder in folders:
            kernel.mount("tmpfs", str(folder), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"size={DISK_BYTES}")


class _Image:
    """The file behind a loop device; several are formatted at the same time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder.with_name("disk.image")
        with self._path.open("wb") as file:
            file.truncate(DISK_BYTES)
        self._format = _start("mkfs.ext4", *_FORMAT, str(self._path))

    def mounted(self) -> bool:
        """Mount it once it is formatted; its name goes either way."""
        try:
            mounting = ("mount", "-o", "loop,nosuid,nodev", str(self._path), str(self._folder))
            if not _ended_well(self._format) or not _ended_well(_start(*mounting)):
                return False
            (self._folder / "lost+found").rmdir()
            return True
        finally:
            self._path.unlink()


def _start(program: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [shutil.which(program, path=_PATH) or program, *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def _ended_well(process: subprocess.Popen[bytes]) -> bool:
    try:
        return process.wait(_MAKE_S) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
