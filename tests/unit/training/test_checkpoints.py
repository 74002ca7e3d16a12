"""Checkpoints: whole or not there, and never loaded when damaged. What is killed here is killed for real."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from training import checkpoints
from training.checkpoints import Checkpoints


def state(step: int) -> dict[str, Any]:
    return {"weights": torch.full((1000,), float(step)), "step": step}


def newest(folder: Path) -> int | None:
    found = Checkpoints(folder).newest()
    if found is None:
        return None
    step, loaded = found
    assert loaded["step"] == step
    assert torch.equal(loaded["weights"], state(step)["weights"])
    return step


def test_what_was_written_is_loaded_and_the_newest_two_stay(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "disk")
    assert kept.newest() is None
    for step in (9, 10, 100):
        kept.write(step, state(step))
        assert newest(tmp_path / "disk") == step
    assert [step for step, _ in kept.files()] == [10, 100]


def test_the_same_step_may_be_written_again(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    for _ in range(3):
        kept.write(5, state(5))
    assert newest(tmp_path) == 5


@pytest.mark.parametrize("harm", ["flip", "cut", "empty"])
def test_a_damaged_one_is_never_loaded(tmp_path: Path, harm: str) -> None:
    kept = Checkpoints(tmp_path)
    kept.write(10, state(10))
    kept.write(20, state(20))
    _, path = kept.files()[-1]
    size = path.stat().st_size
    if harm == "flip":
        checkpoints._damage(path)
        assert path.stat().st_size == size
    else:
        os.truncate(path, size // 2 if harm == "cut" else 0)
    with pytest.raises(checkpoints.Damaged):
        checkpoints.load(path)
    assert newest(tmp_path) == 10


def test_one_that_is_ordered_to_be_damaged_is_found_out(tmp_path: Path) -> None:
    Checkpoints(tmp_path).write(10, state(10))
    Checkpoints(tmp_path, in_write=lambda: True).write(20, state(20))
    assert newest(tmp_path) == 10


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    def full() -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    for step in (10, 20):
        Checkpoints(tmp_path).write(step, state(step))
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(OSError, match="No space left"):
        Checkpoints(tmp_path, in_write=full).write(30, state(30))
    assert sorted(os.listdir(tmp_path)) == before
    assert newest(tmp_path) == 20


@pytest.mark.parametrize("limit", [0, 2000, 1 << 20, 4_000_000])
def test_a_disk_that_takes_only_a_part_fails_the_write(tmp_path: Path, limit: int) -> None:
    """The kernel refuses bytes beyond the file size limit, as a full disk does; torch hides why."""
    Checkpoints(tmp_path).write(10, state(10))

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            Checkpoints(tmp_path).write(20, {"weights": torch.zeros(1_000_000), "more": torch.zeros(1000)})
        except OSError as error:
            os._exit(7 if error.errno == errno.EFBIG else 8)

    assert in_child(limited) == 7
    assert newest(tmp_path) == 10


MOMENTS = ["write", "fsync", "rename", "unlink"]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_moment_a_loadable_one_is_there(tmp_path: Path, moment: str, after: bool) -> None:
    for step in (10, 20):
        Checkpoints(tmp_path).write(step, state(step))

    def die() -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return False

    def killed() -> None:
        kept = Checkpoints(tmp_path, in_write=die if moment == "write" else lambda: False)
        owner: Any = {"fsync": os, "rename": Path, "unlink": Path}.get(moment)
        if owner is not None:
            genuine: Callable[..., Any] = getattr(owner, moment)

            def struck(*args: Any, **options: Any) -> None:
                if after:
                    genuine(*args, **options)
                die()

            setattr(owner, moment, struck)
        kept.write(30, state(30))

    assert in_child(killed) == -signal.SIGKILL
    assert newest(tmp_path) in (20, 30)
    Checkpoints(tmp_path).write(40, state(40))
    assert newest(tmp_path) == 40
    assert len(os.listdir(tmp_path)) == checkpoints.KEEP, "nothing half is left"


def in_child(act: Callable[[], None]) -> int:
    """Exit status of a forked process that does it, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(99)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
