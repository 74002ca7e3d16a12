"""The small parts of running here: claimed blocks of loopback, processes, the embedded data, progress."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from training import process
from training.data import make
from training.dataset import EMBEDDED_DATA
from training.launch import Block
from training.progress import EventFiles, Progress


def test_two_runs_have_disjoint_addresses() -> None:
    blocks = [Block() for _ in range(20)]
    assert len({block.address(0) for block in blocks}) == 20
    for block in blocks:
        block.close()


def test_children_are_found_and_a_dead_process_has_none() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.pid in process.children(os.getpid())
    child.communicate(b"\n", timeout=20)
    assert process.children(child.pid) == []


def test_a_child_hears_of_its_parents_end() -> None:
    watcher = (
        "import threading; from training import process; gone = threading.Event();"
        "process.when_parent_ends(gone.set); print('ready', flush=True);"
        "print('gone' if gone.wait(20) else 'alone', flush=True)"
    )
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {watcher!r}]); input()"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"ready\n"
        started.kill()
        assert started.stdout.readline() == b"gone\n"


def test_the_embedded_data_is_what_its_script_makes(tmp_path: Path) -> None:
    make.make(tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (EMBEDDED_DATA / path.name).read_bytes()


def step(member: str, number: int, digest: str, committed: bool = True) -> dict[str, Any]:
    return {
        "kind": "step", "member": member, "incarnation": 1, "step": number, "committed": committed, "mono_s": 0.0,
        "digest": digest, "error": None if committed else "why", "loss": 1.0, "participants": 2,
    }  # fmt: skip


def test_differing_states_are_counted() -> None:
    progress = Progress(steps=2)
    for event in (step("a", 1, "x"), step("b", 1, "x"), step("a", 2, "x"), step("b", 2, "y")):
        progress.take(event)
    assert progress.differing_steps() == [2]
    assert "differ at 1 of 2, first at step 2" in "\n".join(progress.summary())


def test_a_discarded_try_is_told() -> None:
    assert Progress(steps=2).take(step("a", 1, "x", committed=False)) == "a#1 discards step 1: why"


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path, files = tmp_path / "m-1.jsonl", EventFiles(tmp_path)
    line = json.dumps({"kind": "step"}) + "\n"
    path.write_text(line + line[:5])
    assert len(list(files.new())) == 1
    with path.open("a") as file:
        file.write(line[5:])
    assert list(files.new()) == [{"kind": "step"}]
    assert list(files.new()) == []


def test_a_folder_with_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "training", "run", "--out", str(tmp_path)], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 64
    assert "choose another folder" in done.stderr


@pytest.mark.parametrize("command", ["lighthouse", "controller", "worker"])
def test_sigterm_is_prompt(command: str, tmp_path: Path) -> None:
    """Each member's main process ends on SIGTERM within 5 s, before it has done anything else."""
    port = process.free_port("127.0.0.1")
    me = ["--name", command, "--incarnation", "1", "--events", str(tmp_path / "e.jsonl")]
    place = ["--address", "127.0.0.1", "--host", "127.0.0.1", "--data-interface", "lo", "--scratch", str(tmp_path)]
    controller = ["--controller", f"127.0.0.1:{port}"]
    bind = ["--bind", f"127.0.0.1:{port}", *(["--lighthouse", "127.0.0.1:9"] if command == "controller" else [])]
    options = [*place, *controller] if command == "worker" else bind
    log = tmp_path / "log"
    with log.open("wb") as out:
        child = subprocess.Popen([sys.executable, "-m", "training", command, *me, *options], stdout=out, stderr=out)
    ready = {"lighthouse": "lighthouse at", "controller": "controller at", "worker": "serves at"}[command]
    while ready not in log.read_text():
        assert child.poll() is None, log.read_text()
    child.terminate()
    assert child.wait(timeout=5) == 0
