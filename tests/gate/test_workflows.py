"""The ready-made workflow files: they are what they claim to be, and their commands do what they say."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from chaos.gate.suite import shipped
from tests.conftest import CHAOS

CI = Path(__file__).parents[2] / "experiments" / "gates" / "ci"
TOY = "--set workload.program=toyjob --set workload.recipe=toy --set workload.steps=4000"
INSTALL = "python -m pip install 'torchchaos[training]'"


def github() -> tuple[list[str], str]:
    """The commands, and where the summary goes."""
    data: dict[Any, Any] = yaml.safe_load((CI / "github.yml").read_text())
    assert {"pull_request", "schedule"} == data[True].keys()  # YAML 1.1 takes `on` for a truth value.
    (job,) = data["jobs"].values()
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    assert all(f"'{name}'" in job["env"]["SUITE"] for name in shipped())
    return [step["run"] for step in job["steps"] if "run" in step], "summary.md"


def gitlab() -> tuple[list[str], str]:
    data = yaml.safe_load((CI / "gitlab.yml").read_text())
    (job,) = data.values()
    assert {rule["variables"]["SUITE"] for rule in job["rules"]} == shipped().keys()
    assert job["artifacts"]["reports"] == {"junit": "junit.xml"}
    return job["script"], "gate.md"


@pytest.mark.parametrize("workflow", [github, gitlab])
def test_its_commands_run_and_leave_the_summary_and_the_junit_file(tmp_path, chaos_env, workflow):
    commands, summary = workflow()
    assert commands[0] == INSTALL
    environment = {
        **chaos_env,
        "PATH": f"{CHAOS.parent}{os.pathsep}{os.environ['PATH']}",
        "SUITE": "smoke",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    for command in commands[1:]:
        shell = ["bash", "-ec", command.replace('"$SUITE"', f'"$SUITE" {TOY}')]
        done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / summary).read_text().startswith("## PASS: gate smoke")
    assert (tmp_path / "junit.xml").is_file()
