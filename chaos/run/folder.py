"""The folder of a run, and the claim that only one run of a name goes on at a time."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.model.errors import BadInput, MachineUnfit

FREE_BYTES_MIN = 64 * 1024 * 1024
"""A journal grows by about a kilobyte a step; logs and checkpoints of the job come on top."""


@contextmanager
def claimed(runs: Path, name: str) -> Iterator[Path]:
    """A new folder `runs/<time>-<name>`, with the name claimed for as long as the context is open.

    The claim is an abstract Unix socket: the kernel drops it with the process, so no lock file can be left behind.
    """
    try:
        runs.mkdir(parents=True, exist_ok=True)
        root = runs.resolve(strict=True)
        free_bytes = shutil.disk_usage(root).free
    except OSError as error:
        raise BadInput(f"{runs} cannot hold runs: {error.strerror}; type --runs FOLDER that you may write to") from None
    if free_bytes < FREE_BYTES_MIN:
        raise MachineUnfit(
            f"{root} has {free_bytes // 1024**2} MiB free, a run needs {FREE_BYTES_MIN // 1024**2} MiB; "
            "free some disk or type --runs FOLDER on another one"
        )
    with claim(root, name):
        yield _create(root, name)


@contextmanager
def claim(root: Path, name: str) -> Iterator[None]:
    """Hold a name in a folder for as long as the context is open. BadInput when somebody else does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        try:
            held.bind(f"\0torchchaos/{root.stat().st_dev}/{root.stat().st_ino}/{name}")
        except OSError:
            raise BadInput(
                f"a run of {name!r} is going on in {root}; wait for it, or type --runs FOLDER for a second one"
            ) from None
        yield


def _create(root: Path, name: str) -> Path:
    """Runs of one name follow one another within a second only when they fail early; those get a number."""
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    for number in range(1, 1000):
        folder = root / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise BadInput(f"{folder} cannot be made: {error.strerror}; type --runs FOLDER") from None
        return folder
    raise BadInput(f"{root} holds a thousand runs called {stem}; type --runs FOLDER for another one")
