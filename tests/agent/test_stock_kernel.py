"""The same tests on a stock kernel with version 2 cgroups and netem, in an emulated machine.

TORCHCHAOS_VM names a program that runs a command there: `$TORCHCHAOS_VM --timeout SECONDS -- COMMAND`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

VM = os.environ.get("TORCHCHAOS_VM", "")
VM_S = 1800
MODULES = ("veth", "sch_netem", "sch_tbf", "nf_tables", "nft_numgen", "brd")
DISK = "/mnt"
KERNEL_MATTERS = "in_force or limit or stopped or crash or overlap or memory"
COMMAND = f"""
for module in {" ".join(MODULES)}; do modprobe $module || exit 1; done
mkfs.ext4 -q /dev/ram0 && mount /dev/ram0 {DISK} || exit 1
export TORCHCHAOS_TEST_DISK={DISK} TORCHCHAOS_EXAMPLES=2
{sys.executable} -B -m pytest -p no:cacheprovider -q tests/agent -k "{KERNEL_MATTERS}"
"""


@pytest.mark.skipif(not VM, reason="TORCHCHAOS_VM names no program that runs a command on a stock kernel")
def test_on_a_stock_kernel() -> None:
    command = [VM, "--timeout", str(VM_S), "--", COMMAND]
    done = subprocess.run(command, capture_output=True, text=True, timeout=VM_S + 60)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr
    assert "needs netem" not in done.stdout
