"""Become an ordinary user, then run a Python program.

    python as_user.py UID PROGRAM ARGUMENT...       (as root)

Where the interpreter lies in a folder that only root may enter, such as /root, it is shown there to this process alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from chaos.platforms.local import kernel


def show(path: str) -> None:
    """Make a folder reachable whose way leads through a folder of root's."""
    closed = [str(parent) for parent in Path(path).parents if not parent.stat().st_mode & 0o001]
    if not closed:
        return
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mounts_private()
    fd = os.open(path, os.O_PATH)
    kernel.mount("tmpfs", closed[-1], "tmpfs", 0, "mode=755")
    os.makedirs(path)
    kernel.bind(f"/proc/self/fd/{fd}", path)
    os.close(fd)


def main() -> None:
    user = int(sys.argv[1])
    show(sys.base_prefix)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])


if __name__ == "__main__":
    main()
