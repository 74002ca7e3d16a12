"""An ordinary user runs whole clusters, and leaves as little behind."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import WAIT_S
from traces import Traces

from chaos.platforms.local import doctor

HERE = Path(__file__).parent
USER = 54321
REPOSITORY = str(HERE.parents[1])

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becoming an ordinary user needs root; the others ran as one")


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """A run folder of the ordinary user's, right below /tmp."""
    folder = tempfile.mkdtemp(prefix="rootless-")
    os.chown(folder, USER, USER)
    yield Path(folder)
    shutil.rmtree(folder)


@pytest.fixture(params=["user-namespaces", "processes"])
def rootless(request: pytest.FixtureRequest) -> str:
    if refusal := doctor.refusal(request.param):
        pytest.skip(f"{request.param} does not work here: {refusal}")
    return str(request.param)


def as_user(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, HERE / "as_user.py", str(USER), HERE / program, *map(str, arguments)]
    environ = {**os.environ, "PYTHONPATH": REPOSITORY, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environ, cwd="/", text=True, **pipes)


def test_a_whole_run(run_dir: Path, rootless: str) -> None:
    traces = Traces(run_dir)
    with as_user("rootless_run.py", run_dir, rootless) as run:
        words, errors = run.communicate(timeout=2 * WAIT_S)
    assert words == f"{rootless}\n", errors
    assert (run_dir / "members" / "replica-1" / "2.log").stat().st_uid == USER
    assert traces.left() == []


def test_a_killed_run(run_dir: Path, rootless: str) -> None:
    traces = Traces(run_dir)
    with as_user("clusters.py", run_dir, rootless) as run:
        assert run.stdout is not None and run.stderr is not None
        assert select.select([run.stdout], [], [], WAIT_S)[0], "not up in time"
        assert run.stdout.readline() == "up\n", run.stderr.read()
        run.kill()
    traces.wait_until_gone()
