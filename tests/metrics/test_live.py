"""`chaos run --metrics` without a Prometheus: what a person sees of it."""

from __future__ import annotations

import signal
import subprocess
import time
import urllib.request

from tests.conftest import CHAOS
from tests.metrics.prometheus import PATIENCE_S

TOY = ("--set", "workload.program=toyjob", "--set", "workload.recipe=toy", "--set", "workload.steps=4000")


def test_ctrl_c_ends_the_wait_for_the_last_scrape_and_the_verdict_stands(tmp_path, chaos_env):
    command = [CHAOS, "run", "steady", *TOY, "--metrics", ":0"]
    with subprocess.Popen(command, cwd=tmp_path, env=chaos_env, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("metrics at "):
                urllib.request.urlopen(line.split()[-1], timeout=PATIENCE_S).read()
            if "for the last scrape" in line:
                asked_s = time.monotonic()
                running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE_S) == 0
        assert time.monotonic() - asked_s < PATIENCE_S / 2
