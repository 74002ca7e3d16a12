"""Shipped experiments on a real Kubernetes with the toy job, from the same files as on local pods.

One of each kind of injection; with TORCHCHAOS_EVERY set, each one. What nodes here lack is skipped by name.

A run waits most of the time, so several go on at once. Those that do something to a whole node, where pods of others
would be, go before, one by one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from chaos.load import load, shipped
from chaos.model.aim import NODE
from chaos.model.injections import OF_THE_JOB
from chaos.model.plan import Plan
from chaos.model.verdict import Verdict
from chaos.plan import plan
from tests.experiments.test_every_experiment import NAMES, Done, check_proofs, shortened
from tests.kubernetes.conftest import Cluster

AT_ONCE = 4
ONE_OF_EACH = (
    *("allreduce-error", "controller-cutoff", "controller-kill", "cpu-starve", "disk-full", "dns-fail"),
    *("heal-kill-donor", "io-starve", "kubelet-freeze", "lighthouse-freeze", "memory-squeeze", "network-bandwidth"),
    *("network-blackhole", "node-down", "node-drain", "pids-exhaust", "pod-evict", "pod-kill", "process-kill"),
    *("rdma-delay", "rdma-flap", "rdma-vf-gone"),
)
"""Every kind of injection is among theirs."""
STEP_S = 0.1
"""As `TOY` has it."""
MTBF_S = 6.0
"""Slower than on local pods: a life takes seconds to come back here, and faults that wait for one would pile up."""


def of_toy(name: str) -> Plan:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(for_cluster(name), file)
        return plan(load(file.name))


def for_cluster(name: str) -> dict[str, Any]:
    data = shortened(shipped()[name])
    data.setdefault("topology", {})["nodes"] = 2
    data["workload"]["settings"]["step_s"] = STEP_S
    for mix in data.get("mixes", []):
        mix["repeat"]["mtbf_s"] = MTBF_S
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("every")


@pytest.fixture(scope="module")
def runs(request, cluster: Cluster, folder: Path) -> Iterator[dict[str, Future[Done | set[str]]]]:
    """The run of each experiment that is asked for; or what it needs and the cluster lacks."""
    items = [item for item in request.session.items if item.module is request.module]
    plans = {name: of_toy(name) for name in (item.callspec.params["name"] for item in items)}
    alone = [name for name, planned in plans.items() if any(fault.role == NODE for fault in planned.faults)]
    found = OF_THE_JOB | {"moves"} | cluster.capabilities()

    def run(name: str) -> Done | set[str]:
        if missing := {need for fault in plans[name].faults for need in fault.needs} - found:
            return missing
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(for_cluster(name), sort_keys=False))
        return cluster.run(path, folder / name)

    with ThreadPoolExecutor(1) as one:
        done = {name: one.submit(run, name) for name in alone}
    with ThreadPoolExecutor(AT_ONCE) as several:
        yield done | {name: several.submit(run, name) for name in plans if name not in done}
        several.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", NAMES if "TORCHCHAOS_EVERY" in os.environ else ONE_OF_EACH)
def test_the_fault_strikes_and_is_undone_and_a_correct_job_passes(cluster, runs, folder, name):
    done = runs[name].result()
    if isinstance(done, set):
        pytest.skip(f"this cluster lacks {', '.join(sorted(done))}")
    said = done.stdout + done.stderr
    assert (folder / name).is_dir(), said
    (run_dir,) = (folder / name).iterdir()
    check_proofs(run_dir, said)
    assert done.returncode == 0, said
    verdict = msgspec.json.decode((run_dir / "verdict.json").read_bytes(), type=Verdict)
    proven = {finding.monitor: finding.outcome.value for finding in verdict.findings}
    assert (proven["fault_in_force"], proven["fault_reverted"]) == ("PASS", "PASS"), said
    assert cluster.left(run_dir) == ""
