"""A run whose disk fills up ends at once: what is not recorded did not happen."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

CHAOS = Path(sys.executable).with_name("chaos")
TOY = ("--set", "workload.program=toyjob", "--set", "workload.recipe=toy")


def test_a_journal_that_cannot_be_written_ends_the_run_and_is_unknown(chaos, tmp_path, chaos_env):
    """A limit to the size of the runner's files does to it what a full disk does, and to nobody else."""
    with subprocess.Popen(
        [CHAOS, "run", "steady", *TOY, "--set", "quiesce.common_steps=300"],
        cwd=tmp_path,
        env=chaos_env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        assert any("phase: quiesce" in line for line in running.stdout)
        (journal,) = tmp_path.glob("runs/*/journal.jsonl")
        limit_bytes = journal.stat().st_size + 5000
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
        said = running.stderr.read()
        assert running.wait(60) == 2
    assert said.startswith("chaos: the journal cannot be written: ")
    assert len(said.splitlines()) == 1
    assert journal.stat().st_size <= limit_bytes
    done = chaos("check", str(journal.parent))
    assert done.returncode == 2
    assert "the journal has no end: the run was cut off" in done.stdout
    assert chaos("clean").stdout.strip() == "nothing was left behind"
