"""Every shipped experiment on a real Kubernetes with the toy job, from the same files as on local pods.

A run waits most of the time, so several go on at once. Those that do something to a whole node, where pods of others
would be, go before, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import yaml

from chaos.load import load, shipped
from chaos.model.aim import NODE
from chaos.model.plan import Plan
from chaos.model.verdict import Verdict
from chaos.plan import plan
from tests.experiments.test_every_experiment import NAMES, Done, check_proofs, shortened
from tests.kubernetes.conftest import Cluster

AT_ONCE = 4
LACKS = {"moves", "netem"}
"""What not every layout or kernel has: refused by name."""
MTBF_S = 6.0
"""Slower than on local pods: a life takes seconds to come back here, and faults that wait for one would pile up."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("every")


@pytest.fixture(scope="module")
def runs(request, cluster: Cluster, folder: Path) -> Iterator[dict[str, Future[Done]]]:
    """The run of each experiment that is asked for."""
    items = [item for item in request.session.items if item.module is request.module]
    plans = {name: written(name, folder) for name in (item.callspec.params["name"] for item in items)}
    alone = [name for name, planned in plans.items() if any(fault.role == NODE for fault in planned.faults)]

    def run(name: str) -> Done:
        return cluster.run(folder / f"{name}.yaml", folder / name)

    with ThreadPoolExecutor(1) as one:
        done = {name: one.submit(run, name) for name in alone}
    with ThreadPoolExecutor(AT_ONCE) as several:
        yield done | {name: several.submit(run, name) for name in plans.keys() - done.keys()}
        several.shutdown(cancel_futures=True)


def written(name: str, folder: Path) -> Plan:
    """The experiment's file for these tests is there; its plan."""
    data = shortened(shipped()[name])
    data.setdefault("topology", {})["nodes"] = 2
    for mix in data.get("mixes", []):
        mix["repeat"]["mtbf_s"] = MTBF_S
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return plan(load(str(path)))


@pytest.mark.parametrize("name", NAMES)
def test_the_fault_strikes_and_is_undone_and_a_correct_job_passes(cluster, runs, folder, name):
    done = runs[name].result()
    said = done.stdout + done.stderr
    if done.returncode == 64:
        lacking = LACKS & {need for fault in written(name, folder).faults for need in fault.needs}
        assert any(f"needs {need}" in said or f", {need}" in said for need in lacking), said
        return
    (run_dir,) = (folder / name).iterdir()
    check_proofs(run_dir, said)
    assert done.returncode == 0, said
    verdict = msgspec.json.decode((run_dir / "verdict.json").read_bytes(), type=Verdict)
    proven = {finding.monitor: finding.outcome.value for finding in verdict.findings}
    assert (proven["fault_in_force"], proven["fault_reverted"]) == ("PASS", "PASS"), said
    assert cluster.left(run_dir) == ""
