"""Every shipped experiment, on real pods, with the toy job: each fault strikes, is undone, and does what it should.

The toy is a correct fault-tolerant job, so it passes. Times are shorter than for the real job, faults and targets are
the same. What needs more than this machine has is skipped by name. Known bugs are the real job's own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from chaos import journal
from chaos.check import PLAN
from chaos.load import load, shipped
from chaos.model.events import FaultPointHit, FaultStarted, InjectionInForce, InjectionReverted, RevertFailed
from chaos.model.injections import FaultPoint, Held
from chaos.model.plan import Plan
from chaos.model.verdict import Verdict
from chaos.plan import plan
from tests.conftest import CHAOS, lacking

NAMES = [name for name in shipped() if "/" not in name]
AT_ONCE = 2
RUN_S_MAX = 150.0
HELD_S = 3.0
"""Longer than the toy's patience with a replica that is silent."""
STORM = {"count": 8, "mtbf_s": 1.5}
LONG_STEPS = 450
"""What `bounded_memory` asks of a life before it speaks, and some more."""

Done = subprocess.CompletedProcess[str]


def shortened(text: str) -> dict[str, Any]:
    """An experiment for the toy job."""
    data = yaml.safe_load(text)
    data.pop("expect", None)
    settings = data["workload"].get("settings", {})
    settings = {key: value for key, value in settings.items() if key == "checkpoint_every"}
    data["workload"] |= {"program": "toyjob", "recipe": "toy", "steps": 100_000, "settings": settings}
    data["quiesce"]["common_steps"] = LONG_STEPS if "bounded_memory" in data["monitors"] else 10
    faults = data.get("faults", [])
    for mix in data.get("mixes", []):
        mix["repeat"] = STORM
        faults = [*faults, *mix["faults"]]
    for fault in faults:
        if "for_s" in fault:
            fault["for_s"] = min(fault["for_s"], HELD_S)
        if "hold_s" in fault.get("args", {}):
            fault["args"]["hold_s"] = HELD_S - 1
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("every")


@pytest.fixture(scope="module")
def runs(request, folder, chaos_env) -> Iterator[dict[str, Future[Done | set[str]]]]:
    """The run of each experiment that is asked for, some at a time."""
    items = [item for item in request.session.items if item.module is request.module]
    names = [item.callspec.params["name"] for item in items]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(run, name, folder, chaos_env) for name in names}
        pool.shutdown(cancel_futures=True)


def run(name: str, folder: Path, env: dict[str, str]) -> Done | set[str]:
    """The run is over; or what it needs and this machine lacks."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(shortened(shipped()[name]), sort_keys=False))
    if missing := lacking(plan(load(str(path)))):
        return missing
    command = [CHAOS, "run", path, "--runs", folder / name]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=RUN_S_MAX)


@pytest.mark.parametrize("name", NAMES)
def test_the_fault_strikes_and_is_undone_and_a_correct_job_passes(runs, folder, name):
    done = runs[name].result()
    if isinstance(done, set):
        pytest.skip(f"this machine lacks {', '.join(sorted(done))}")
    said = done.stdout + done.stderr
    assert (folder / name).is_dir(), said
    (run_dir,) = (folder / name).iterdir()
    check_proofs(run_dir, said)
    verdict = msgspec.json.decode((run_dir / "verdict.json").read_bytes(), type=Verdict)
    assert done.returncode == 0, said
    proven = {finding.monitor: finding.outcome.value for finding in verdict.findings}
    assert (proven["fault_in_force"], proven["fault_reverted"]) == ("PASS", "PASS"), said


def check_proofs(run_dir: Path, said: str) -> None:
    """In the journal: what was started came into force, struck, and was taken back."""
    planned = msgspec.json.decode((run_dir / PLAN).read_bytes(), type=Plan)
    events = list(journal.Reading(run_dir / journal.NAME).events())
    started = {e.fault_id: e for e in events if isinstance(e, FaultStarted)}
    assert started.keys() == {fault.id for fault in planned.faults}, said
    wanted = [(fault_id, one) for fault_id, event in started.items() for one in event.injections]
    in_force = [(e.fault_id, e.injection) for e in events if isinstance(e, InjectionInForce)]
    assert set(wanted) <= set(in_force), said
    assert not [e for e in events if isinstance(e, RevertFailed)], said
    reverted = [(e.fault_id, e.injection) for e in events if isinstance(e, InjectionReverted)]
    held = [one for one in in_force if isinstance(one[1], Held)]
    assert sorted(map(repr, held)) == sorted(map(repr, reverted)), said
    hits = [(e.member, e.point) for e in events if isinstance(e, FaultPointHit)]
    ordered = [one for _, one in wanted if isinstance(one, FaultPoint)]
    assert all((one.target, one.point.value) in hits for one in ordered), said
