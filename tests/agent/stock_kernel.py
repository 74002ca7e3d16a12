"""Tests marked `kernel`, once more on a stock kernel (version 2 cgroups, netem, soft RoCE), in an emulated machine.

TORCHCHAOS_VM names a program that runs a command there, with this machine's files and $OUT: `$TORCHCHAOS_VM --timeout
SECONDS --out DIR -- COMMAND`. One run of it makes all of them; each has its own result here.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

VM = os.environ.get("TORCHCHAOS_VM", "")
RESULTS = "TORCHCHAOS_TEST_RESULTS"
"""Names the file in which each report of a test is a line."""
VM_S = 900
DISK = "/mnt"
_MODULES = (
    "veth ifb sch_netem sch_tbf sch_ingress sch_htb cls_u32 act_mirred nf_tables nft_numgen brd rdma_rxe ib_uverbs"
)
PREPARE = f"""
modprobe -a {_MODULES} || exit 1
mkfs.ext4 -q /dev/ram0 && mount /dev/ram0 {DISK} || exit 1
touch /run/first && mount --bind /proc/self/ns/net /run/first || exit 1
ulimit -l unlimited
export TORCHCHAOS_TEST_DISK={DISK} TORCHCHAOS_TEST_FIRST=/run/first PYTHONDONTWRITEBYTECODE=1
apart() {{ unshare --net --pid --fork --mount-proc "$@"; }}
"""
"""Soft RoCE works in the first network namespace only, so what is tested lives there, and who tests apart from it."""


def run(command: str, out: Path, within_s: int = VM_S) -> subprocess.CompletedProcess[str]:
    """Run a shell command on the stock kernel; what it puts into $OUT is in `out` then."""
    if not VM:
        sys.exit("set TORCHCHAOS_VM to a program that runs a command on a stock kernel")
    call = [VM, "--timeout", str(within_s), "--out", str(out), "--", PREPARE + command]
    return subprocess.run(call, capture_output=True, text=True, timeout=within_s + 60)


class Machine:
    """One run of it, made when the first result is asked for."""

    def __init__(self) -> None:
        self.nodes: list[str] = []
        self._said = ""
        self._reports: dict[str, dict[str, str]] | None = None

    def report(self, node: str) -> dict[str, str]:
        if self._reports is None:
            self._reports = self._run()
        return self._reports.get(node, {"outcome": "failed", "text": f"it did not come to this test\n{self._said}"})

    def _run(self) -> dict[str, dict[str, str]]:
        tests = shlex.join([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *self.nodes])
        alone = f"{RESULTS}=$OUT/results PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 TORCHCHAOS_EXAMPLES=1"
        with tempfile.TemporaryDirectory(prefix="torchchaos-vm-") as out:
            done = run(f"export {alone}; apart {tests}", Path(out))
            self._said = (done.stdout + done.stderr)[-4000:]
            results = Path(out, "results")
            lines = results.read_text().splitlines() if results.exists() else []
        reports: dict[str, dict[str, str]] = {}
        for line in map(json.loads, lines):
            if line["outcome"] != "passed" or line["when"] == "call":
                reports.setdefault(line["node"], line)
        return reports


class Twin(pytest.Item):
    """A test as it went on the stock kernel."""

    def __init__(self, *, of: pytest.Item, machine: Machine, **how: Any) -> None:
        super().__init__(**how)
        self._node = of.nodeid
        self._machine = machine

    def runtest(self) -> None:
        report = self._machine.report(self._node)
        if report["outcome"] == "skipped":
            pytest.skip(report["text"])
        if report["outcome"] != "passed":
            pytest.fail(report["text"], pytrace=False)


def add_twins(items: list[pytest.Item]) -> None:
    machine = Machine()
    twins = []
    for item in items:
        if item.get_closest_marker("kernel") and item.parent:
            twins.append(Twin.from_parent(item.parent, name=f"{item.name}@stock-kernel", of=item, machine=machine))
    machine.nodes = [item.nodeid for item in sorted(items, key=_slow) if item.get_closest_marker("kernel")]
    items += twins


def _slow(item: pytest.Item) -> bool:
    """What takes long comes last, so that the rest has its results if the time is over."""
    return "test_any_sequence" in item.nodeid or "test_dead_man" in item.nodeid


def write(report: pytest.TestReport) -> None:
    """One line of the file that the environment names."""
    text = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else report.longreprtext
    line = {"node": report.nodeid, "when": report.when, "outcome": report.outcome, "text": text}
    with open(os.environ[RESULTS], "a") as file:
        file.write(json.dumps(line) + "\n")
