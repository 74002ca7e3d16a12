"""The regressions that show what a gate catches still reach the code that they make worse."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REGRESSIONS = Path(__file__).parents[1] / "gate" / "regressions"
LOOK = "from training.manager import WatchedClient; print(WatchedClient.should_commit.__module__)"


def test_skipped_commits_are_skipped_where_replicas_vote() -> None:
    env = {**os.environ, "PYTHONPATH": str(REGRESSIONS), "REGRESSION": "skips_commits"}
    said = subprocess.run([sys.executable, "-c", LOOK], env=env, capture_output=True, text=True, check=True).stdout
    assert said.split()[-1] == "sitecustomize"
