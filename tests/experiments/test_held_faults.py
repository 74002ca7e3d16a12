"""Faults that are held, on real pods: in force, undone, proven both ways, whoever dies meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from chaos import journal
from chaos.model.events import InjectionInForce, InjectionReverted, MemberStarted
from chaos.model.injections import Held
from chaos.model.verdict import Verdict
from chaos.platforms.local import doctor
from tests.conftest import CHAOS

EXPERIMENT = """
name: held
why: Each held fault once, some of them at the same time.
workload: {program: toyjob, recipe: toy, replicas: 3, min_replicas: 1, steps: 9000}
topology: {nodes: 2}
baseline: {steps: 5}
monitors: {progress: {stall_s_max: 30}}
faults:
"""
ANYWHERE = """
  - {fault: nic.down, target: {role: replica, member: replica-1}, at: {step: 10}, for_s: 1}
  - {fault: nic.flap, target: {role: replica, member: replica-1}, at: {seconds: 2}, for_s: 1, args: {period_s: 0.5}}
  - {fault: dns.fail, target: {role: replica, member: replica-0}, at: {seconds: 0}, for_s: 1}
  - {fault: process.freeze, target: {role: replica, member: replica-2}, at: {seconds: 1}, for_s: 1}
  - {fault: network.bandwidth, target: {role: replica, member: replica-0}, at: {seconds: 1}, for_s: 1}
  - {fault: node.down, target: {role: node, member: node-1}, at: {seconds: 4}, for_s: 1}
  - {fault: node.drain, target: {role: node, member: node-1}, at: {seconds: 7}, for_s: 1}
"""
NFT = """
  - {fault: network.partition, target: {role: replica, member: replica-2}, at: {seconds: 2}, for_s: 1}
  - {fault: network.loss, target: {role: replica, member: replica-2}, at: {seconds: 2}, for_s: 1}
"""
CGROUPS = """
  - {fault: cpu.starve, target: {role: replica, member: replica-1}, at: {seconds: 0}, for_s: 1}
  - {fault: memory.squeeze, target: {role: replica, member: replica-1}, at: {seconds: 0}, for_s: 1}
"""


def write(tmp_path: Path, faults: str) -> str:
    path = tmp_path / "held.yaml"
    path.write_text(EXPERIMENT + faults)
    return str(path)


def only_run(tmp_path: Path) -> Path:
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


@pytest.mark.parametrize("isolation", ["namespaces", "user-namespaces"])
def test_every_held_fault_comes_and_goes_with_proof(chaos, tmp_path, isolation):
    if isolation not in doctor.available():
        pytest.skip(f"this machine refuses {isolation}")
    can = doctor.capabilities(isolation)
    faults = ANYWHERE + (NFT if "nft" in can else "") + (CGROUPS if {"cgroup.cpu", "cgroup.memory"} <= can else "")
    done = chaos("run", write(tmp_path, faults), "--isolation", isolation)
    assert done.returncode == 0, done.stdout + done.stderr
    events = list(journal.Reading(only_run(tmp_path) / journal.NAME).events())
    held = [e for e in events if isinstance(e, InjectionInForce) and isinstance(e.injection, Held)]
    reverted = [e for e in events if isinstance(e, InjectionReverted)]
    assert len(held) == len(reverted)
    assert {e.fault_id for e in held} == {f"fault-{i}" for i in range(faults.count("fault:"))}
    assert sum(e.fault_id == "fault-1" for e in held) == 2, "a flap goes down twice"
    moved = [e.node for e in events if isinstance(e, MemberStarted) and e.member == "replica-1"]
    assert "node-0" in moved, "a drained node's member starts elsewhere"


def test_when_the_injector_is_killed_its_successor_gives_everything_back(tmp_path, chaos_env):
    if "namespaces" not in doctor.available():
        pytest.skip("this machine refuses namespaces")
    experiment = write(
        tmp_path,
        "  - {fault: nic.down, target: {role: replica}, at: {step: 10}, args: {interface: control}, for_s: 60}\n",
    )
    with subprocess.Popen(
        [CHAOS, "run", experiment], cwd=tmp_path, env=chaos_env, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert any("in force" in line for line in running.stdout)
        (injector,) = injectors(tmp_path)
        os.kill(injector, signal.SIGKILL)
        rest = running.stdout.read()
        assert running.wait(120) == 2, rest
    verdict = msgspec.json.decode((only_run(tmp_path) / "verdict.json").read_bytes(), type=Verdict)
    said = {finding.monitor: finding.outcome.value for finding in verdict.findings}
    assert said["fault_in_force"] == "PASS"
    assert said["fault_reverted"] == "UNKNOWN"
    assert said["progress"] == "PASS", "the link is back, so the job went on"


def injectors(tmp_path: Path) -> list[int]:
    """The pids of the injectors of the run below `tmp_path`."""
    ledger = str(only_run(tmp_path) / "platform" / "ledger").encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"chaos.agent" in arguments and ledger in arguments:
                found.append(int(entry.name))
    return found
