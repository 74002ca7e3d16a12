"""The same on a stock kernel with cgroups of version 2, in an emulated machine.

TORCHCHAOS_VM names a program that runs a command there: `$TORCHCHAOS_VM --timeout SECONDS -- COMMAND`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

VM = os.environ.get("TORCHCHAOS_VM", "")
VM_S = 500


@pytest.mark.skipif(not VM, reason="TORCHCHAOS_VM names no program that runs a command on a stock kernel")
def test_pods_have_cgroups_of_version_2() -> None:
    program = Path(__file__).with_name("cgroup_run.py")
    command = f"mkdir /tmp/run && {sys.executable} {program} /tmp/run || cat /tmp/run/platform/host.log"
    done = subprocess.run(
        [VM, "--timeout", str(VM_S), "--", command], capture_output=True, text=True, timeout=VM_S + 60
    )
    assert "controllers: cpu io memory pids" in done.stdout, done.stdout + done.stderr
