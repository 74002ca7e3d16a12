"""Tests marked `kernel`, once more on a stock kernel (version 2 cgroups, netem, soft RoCE), in an emulated machine.

TORCHCHAOS_VM names a program that runs a command there, with this machine's files and $OUT: `$TORCHCHAOS_VM --timeout
SECONDS --out DIR -- COMMAND`. One run of it makes all of them, and each has its own result here as soon as it is made.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

VM = os.environ.get("TORCHCHAOS_VM", "")
RESULTS = "TORCHCHAOS_TEST_RESULTS"
"""Names the file in which each report of a test is a line."""
VM_S = 900
POLL_S = 0.1
EXAMPLES = 3
"""Of `test_any_sequence`; the first that hypothesis makes is the same every time."""
DISK = "/mnt"
Part = dict[str, str]
"""Of a test: set-up, call or teardown."""
_MODULES = (
    "veth ifb sch_netem sch_tbf sch_ingress sch_htb cls_u32 act_mirred nf_tables nft_numgen brd rdma_rxe ib_uverbs"
)
PREPARE = f"""
modprobe -a {_MODULES} || exit 1
mkfs.ext4 -q /dev/ram0 && mount /dev/ram0 {DISK} || exit 1
touch /run/first && mount --bind /proc/self/ns/net /run/first || exit 1
ulimit -l unlimited
export TORCHCHAOS_TEST_DISK={DISK} TORCHCHAOS_TEST_FIRST=/run/first
apart() {{ unshare --net --pid --fork --mount-proc "$@"; }}
"""
"""Soft RoCE works in the first network namespace only, so what is tested lives there, and who tests apart from it."""


def run(command: str, out: Path, within_s: int) -> subprocess.CompletedProcess[str]:
    """Run a shell command on the stock kernel; what it puts into $OUT is in `out` then."""
    return subprocess.run(_call(command, out, within_s), capture_output=True, text=True, timeout=within_s + 60)


def again(module: str, *arguments: str, within_s: int) -> int:
    """Run a module of ours there, apart from what it tests, and print what it says; its exit status."""
    command = shlex.join([sys.executable, "-m", module, *arguments])
    with tempfile.TemporaryDirectory(prefix="torchchaos-vm-") as out:
        return subprocess.run(_call(f"apart {command}", Path(out), within_s), timeout=within_s + 60).returncode


def _call(command: str, out: Path, within_s: int) -> list[str]:
    if not VM:
        sys.exit("set TORCHCHAOS_VM to a program that runs a command on a stock kernel")
    return [VM, "--timeout", str(within_s), "--out", str(out), "--", PREPARE + command]


class Machine:
    """One run of it, until it has made all tests or is closed."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: subprocess.Popen[bytes] | None = None
        self._parts: dict[str, list[Part]] = {}
        self._read = 0

    def start(self, nodes: list[str]) -> None:
        """Have it make these tests, unless it is at it already."""
        if self._running is None:
            self._running = self._start(nodes)

    def parts(self, node: str) -> list[Part]:
        """How set-up, call and teardown of a test went, once they are over; less when it did not come to them."""
        assert self._running is not None
        while not self._is_over(node):
            ended = self._running.poll() is not None
            self._take()
            if ended:
                break
            time.sleep(POLL_S)
        return self._parts.get(node, [])

    def said(self) -> str:
        return (self._out / "said").read_text(errors="replace")[-4000:]

    def close(self) -> None:
        self._stack.close()

    def _start(self, nodes: list[str]) -> subprocess.Popen[bytes]:
        self._out = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="torchchaos-vm-")))
        tests = shlex.join([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *nodes])
        alone = f"{RESULTS}=$OUT/results PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 TORCHCHAOS_EXAMPLES={EXAMPLES}"
        call = _call(f"export {alone}; apart {tests}", self._out, VM_S)
        with (self._out / "said").open("wb") as said:
            running = subprocess.Popen(call, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        self._stack.callback(_end, running)
        return running

    def _is_over(self, node: str) -> bool:
        return any(part["when"] == "teardown" for part in self._parts.get(node, []))

    def _take(self) -> None:
        """Whole lines that were written since the last time."""
        results = self._out / "results"
        lines, newline, _rest = (results.read_bytes() if results.exists() else b"")[self._read :].rpartition(b"\n")
        self._read += len(lines) + len(newline)
        for part in map(json.loads, lines.splitlines()):
            self._parts.setdefault(part["node"], []).append(part)


def _end(running: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGINT)
    running.wait()


class Twin(pytest.Item):
    """A test as it went on the stock kernel."""

    def __init__(self, *, of: pytest.Item, machine: Machine, **how: Any) -> None:
        super().__init__(**how)
        self.of = of.nodeid
        self._machine = machine

    def runtest(self) -> None:
        self._machine.start([item.of for item in self.session.items if isinstance(item, Twin)])
        parts = self._machine.parts(self.of)
        for part in parts:
            if part["outcome"] == "skipped":
                pytest.skip(part["text"])
            if part["outcome"] != "passed":
                pytest.fail(part["text"], pytrace=False)
        if not parts or parts[-1]["when"] != "teardown":
            pytest.fail(f"it did not come to this test, or not to its end\n{self._machine.said()}", pytrace=False)


def add_twins(config: pytest.Config, items: list[pytest.Item]) -> None:
    machine = Machine()
    config.add_cleanup(machine.close)
    for item in sorted(items, key=_slow):
        if item.get_closest_marker("kernel") and item.parent:
            items.append(Twin.from_parent(item.parent, name=f"{item.name}@stock-kernel", of=item, machine=machine))


def _slow(item: pytest.Item) -> bool:
    """What takes long comes last, so that the rest has its results if the time is over."""
    return "test_any_sequence" in item.nodeid or "test_dead_man" in item.nodeid


def write(report: pytest.TestReport) -> None:
    """One line of the file that the environment names."""
    text = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else report.longreprtext
    line = {"node": report.nodeid, "when": report.when, "outcome": report.outcome, "text": text}
    with open(os.environ[RESULTS], "a") as file:
        file.write(json.dumps(line) + "\n")
