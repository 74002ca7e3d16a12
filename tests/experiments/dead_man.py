"""Dead-man trials through `chaos run`: everything that can be held is held at once, then someone is killed.

What is left is read from the kernel by its files and the usual programs. When the runner dies the whole cluster does,
and nothing at all may be left. When only the injector dies the cluster lives on, every target must be as it was, and
the run ends as UNKNOWN.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.platforms.local import doctor
from tests.conftest import CHAOS
from tests.experiments import machine

VICTIMS = ("injector", "runner", "both")
HELD_S = 60
SOON_S = 2.0
WAIT_S = 60.0
LOOK_S = 0.01
UNKNOWN = 2
EXPERIMENT = """
name: dead-man
why: Everything that is held comes back, whoever dies.
workload: {program: toyjob, recipe: toy, replicas: 5, min_replicas: 1, steps: 100000, settings: {step_s: 0.1}}
topology: {nodes: 5}
quorum_floor: 0
baseline: {steps: 3}
quiesce: {common_steps: 3}
monitors: {}
faults:
"""


@dataclass(frozen=True)
class Held:
    """A fault that the injector holds; `free` looks whether its target is as it was."""

    fault: str
    target: str
    needs: str
    free: Callable[[Run], bool]

    def line(self) -> str:
        aim = f"{{role: {self.target.partition('-')[0]}, member: {self.target}}}"
        return f"  - {{fault: {self.fault}, target: {aim}, at: {{seconds: 0}}, for_s: {HELD_S}}}\n"


class Run:
    """One `chaos run`, and its members as the machine sees them."""

    def __init__(self, folder: Path, env: dict[str, str], faults: list[Held]) -> None:
        self._folder = folder
        self.marker = f"dead-man-{random.getrandbits(64):x}"
        self._pids: dict[str, int] = {}
        (folder / "dead-man.yaml").write_text(EXPERIMENT + "".join(fault.line() for fault in faults))
        with (folder / "said").open("wb") as said:
            command = [CHAOS, "run", "dead-man.yaml", "--isolation", "namespaces"]
            env = {**env, "MARKER": self.marker}
            self.process = subprocess.Popen(command, cwd=folder, env=env, stdout=said, stderr=said)

    @property
    def run_dir(self) -> Path:
        (found,) = (self._folder / "runs").iterdir()
        return found

    def until_in_force(self, number: int) -> None:
        """Wait until so many faults are in force."""
        injections: dict[str, int] = {}
        in_force: Counter[str] = Counter()
        for event in self._events():
            match event:
                case {"kind": "member_started", "member": member, "pid": pid}:
                    self._pids[member] = pid
                case {"kind": "fault_started", "fault_id": fault_id, "injections": made}:
                    injections[fault_id] = len(made)
                case {"kind": "injection_in_force", "fault_id": fault_id}:
                    in_force[fault_id] += 1
                case {"kind": "injection_failed" | "run_ended"}:
                    raise AssertionError(event)
            if sum(in_force[fault_id] == made for fault_id, made in injections.items()) == number:
                return

    def _events(self) -> Iterator[dict[str, Any]]:
        """The journal as it is written."""
        deadline_s = time.monotonic() + WAIT_S
        text = ""
        while time.monotonic() < deadline_s:
            with suppress(FileNotFoundError, ValueError):
                known, text = text, (self.run_dir / "journal.jsonl").read_text()
                whole = text[: text.rfind("\n") + 1]
                yield from map(json.loads, whole[known.rfind("\n") + 1 :].splitlines())
            time.sleep(LOOK_S)
        raise AssertionError(f"not seen within {WAIT_S} s: {(self._folder / 'said').read_text()[-2000:]}")

    def injector(self) -> int:
        """The pid of the injector that lives now."""
        ledger = str(self.run_dir / "platform" / "ledger").encode()
        for pid in machine.processes_of(self.marker):
            with suppress(OSError):
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"chaos.agent" in arguments and ledger in arguments:
                    return pid
        raise AssertionError("no injector runs")

    def network(self, target: str, *command: str) -> str:
        """What a program prints in the network namespace of a member or a node."""
        entrances = (self.run_dir / "platform" / "enter.txt").read_text().splitlines()
        (words,) = (line.split()[1:] for line in entrances if line.split()[0] == target)
        enter = [word for word in words if word not in ("--mount", "--pid", "--uts", "--ipc")]
        return subprocess.run([*enter, *command], capture_output=True, text=True).stdout

    def carries(self, target: str, interface: str) -> bool:
        return "LOWER_UP" in self.network(target, "ip", "link", "show", interface)

    def limits(self, member: str, *names: str) -> list[str]:
        """What these files of a member's cgroups hold, of version 1 or 2."""
        found = []
        for line in Path(f"/proc/{self._pids[member]}/cgroup").read_text().splitlines():
            _number, controllers, path = line.split(":", 2)
            for name in names:
                with suppress(OSError):
                    found.append(Path(f"/sys/fs/cgroup/{controllers}{path}/{name}").read_text().strip())
        return found

    def stopped(self, member: str) -> bool:
        """Whether a member's main process stands still."""
        state = Path(f"/proc/{self._pids[member]}/stat").read_text().rpartition(")")[2].split()[0]
        return state in "Tt" or self.limits(member, "cgroup.freeze") == ["1"]

    def disk_free(self, member: str) -> float:
        """As a share of its size."""
        disk = f"{self.run_dir}/members/{member}/scratch/disk"
        found = os.statvfs(f"/proc/{self._pids[member]}/root{disk}")
        return found.f_bavail / found.f_blocks


def _cpu(run: Run) -> bool:
    return all(text.startswith(("-1", "max")) for text in run.limits("replica-1", "cpu.cfs_quota_us", "cpu.max"))


def _memory(run: Run) -> bool:
    limits = run.limits("replica-2", "memory.limit_in_bytes", "memory.max", "memory.high")
    return all(text == "max" or int(text) > 1 << 60 for text in limits)


def _io(run: Run) -> bool:
    return not any(run.limits("replica-1", "blkio.throttle.read_bps_device", "io.max"))


HELD = (
    Held("nic.down", "replica-0", "links", lambda run: run.carries("replica-0", "net1")),
    Held("controller.cutoff", "controller", "links", lambda run: run.carries("controller", "eth0")),
    Held("node.down", "node-4", "links", lambda run: run.carries("node-4", "control-up")),
    Held("network.bandwidth", "replica-1", "links", lambda run: "c405" not in _queues(run, "replica-1")),
    Held("network.delay", "replica-3", "netem", lambda run: "netem" not in _queues(run, "replica-3")),
    Held("network.partition", "replica-0", "nft", lambda run: "torchchaos" not in _tables(run, "replica-0")),
    Held("network.blackhole", "replica-1", "nft", lambda run: "torchchaos" not in _tables(run, "replica-1")),
    Held("network.loss", "replica-2", "nft", lambda run: "torchchaos" not in _tables(run, "replica-2")),
    Held("cpu.starve", "replica-1", "cgroup.cpu", _cpu),
    Held("memory.squeeze", "replica-2", "cgroup.memory", _memory),
    Held("io.starve", "replica-1", "cgroup.io", _io),
    Held("disk.full", "replica-2", "disk", lambda run: run.disk_free("replica-2") > 0.5),
    Held("process.freeze", "replica-3", "freeze", lambda run: not run.stopped("replica-3")),
    Held("lighthouse.freeze", "lighthouse", "freeze", lambda run: not run.stopped("lighthouse")),
)


def _queues(run: Run, member: str) -> str:
    return run.network(member, "tc", "qdisc", "show")


def _tables(run: Run, member: str) -> str:
    return run.network(member, "nft", "list", "tables")


def held_here() -> list[Held]:
    """Those that this machine can do."""
    return [one for one in HELD if one.needs in doctor.capabilities("namespaces")]


@dataclass
class Trial:
    """`over_s`: seconds from the kill until a fault's target was seen as it was, or all of the cluster was gone."""

    victim: str
    over_s: dict[str, float] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def trial(folder: Path, env: dict[str, str], victim: str, chance: random.Random) -> Trial:
    """One run in which `victim` is killed at a random moment: in the first SOON_S, or while faults are being made."""
    before = machine.state(folder)
    faults = held_here()
    done = Trial(victim)
    with _started(folder, env, faults) as run:
        run.until_in_force(len(faults) if victim == "injector" else chance.randint(1, len(faults)))
        if victim == "injector":
            unseen = [one.fault for one in faults if one.free(run)]
            assert not unseen, f"said to be in force and is not: {unseen}"
        pids = {"injector": [run.injector()], "runner": [run.process.pid], "both": [run.injector(), run.process.pid]}
        time.sleep(chance.uniform(0, SOON_S))
        for pid in chance.sample(pids[victim], len(pids[victim])):
            os.kill(pid, signal.SIGKILL)
        died_s = time.monotonic()
        if victim == "injector":
            done.over_s = _wait_free(run, faults, died_s)
            done.left = [one.fault for one in faults if one.fault not in done.over_s]
            status = run.process.wait(WAIT_S)
            done.left += [] if status == UNKNOWN else [f"exit status {status}"]
        done.left += machine.left(folder, before, run.marker)
        if victim != "injector":
            done.over_s = {one.fault: time.monotonic() - died_s for one in faults}
    return done


def _wait_free(run: Run, faults: list[Held], since_s: float) -> dict[str, float]:
    """When each target was first seen as it was."""
    over_s: dict[str, float] = {}
    while len(over_s) < len(faults) and time.monotonic() < since_s + WAIT_S:
        for one in faults:
            if one.fault not in over_s and one.free(run):
                over_s[one.fault] = time.monotonic() - since_s
    return over_s


@contextmanager
def _started(folder: Path, env: dict[str, str], faults: list[Held]) -> Iterator[Run]:
    run = Run(folder, env, faults)
    try:
        yield run
    finally:
        run.process.kill()
        run.process.wait(WAIT_S)


def table(trials: list[Trial]) -> str:
    """One line per fault and victim: trials, the longest time until it was over, leftovers."""
    lines = [f"{'fault':20}| {'killed':9}| trials | over after, longest | leftovers"]
    for victim in VICTIMS:
        of_victim = [one for one in trials if one.victim == victim]
        for fault in dict.fromkeys(fault for one in of_victim for fault in one.over_s):
            times = [one.over_s[fault] for one in of_victim if fault in one.over_s]
            stuck = len(of_victim) - len(times)
            lines.append(f"{fault:20}| {victim:9}| {len(of_victim):6} | {max(times):17.2f} s | {stuck}")
        if of_victim:
            left = sum(bool(one.left) for one in of_victim)
            lines.append(f"{'on the machine':20}| {victim:9}| {len(of_victim):6} | {'':19} | {left}")
    return "\n".join(lines)
