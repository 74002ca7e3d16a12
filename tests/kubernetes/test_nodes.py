"""Faults of whole nodes: each strikes, is proven, and is undone, while the job goes on; others' pods there live on."""

from __future__ import annotations

import pytest
import yaml

from chaos import journal
from chaos.model.events import InjectionInForce, InjectionReverted
from tests.experiments.test_every_experiment import check_proofs

NODE = {"role": "node", "member": "node-1"}
FAULTS = [
    {"fault": "cpu.starve", "args": {"cores": 0.3}, "for_s": 3},
    {"fault": "memory.squeeze", "for_s": 3},
    {"fault": "network.bandwidth", "args": {"interface": "data", "rate_mbit_s": 20}, "for_s": 3},
    {"fault": "network.loss", "args": {"percent": 1}, "for_s": 3},
    {"fault": "kubelet.freeze", "for_s": 5},
    {"fault": "nic.down", "args": {"interface": "data"}, "for_s": 3},
    {"fault": "nic.down", "args": {"interface": "control"}, "for_s": 4},
    {"fault": "node.down", "for_s": 5},
]
APART_S = 8
HEARD_S = 8
"""For the agent that was cut off to be heard again."""
EXPERIMENT = {
    "name": "nodes",
    "why": "Everything that can be done to a node, one after the other.",
    "workload": {
        "program": "toyjob",
        "recipe": "toy",
        "replicas": 3,
        "min_replicas": 1,
        "steps": 100_000,
        "settings": {"step_s": 0.1},
    },
    "topology": {"nodes": 2},
    "baseline": {"steps": 5, "timeout_s": 60},
    "quiesce": {"common_steps": 10, "timeout_s": 60},
    "monitors": {"progress": {"stall_s_max": 30}, "same_state": None, "one_quorum": None, "history_kept": None},
}


@pytest.fixture(scope="module")
def run(cluster, tmp_path_factory):
    """One run with all of them: what was said, and its folder."""
    folder = tmp_path_factory.mktemp("nodes")
    faults = [{**fault, "target": NODE, "at": {"seconds": 1 + n * APART_S}} for n, fault in enumerate(FAULTS)]
    faults[-1]["at"]["seconds"] += HEARD_S
    (folder / "nodes.yaml").write_text(yaml.safe_dump({**EXPERIMENT, "faults": faults}))
    done = cluster.run(folder / "nodes.yaml", folder / "runs")
    (run_dir,) = (folder / "runs").iterdir()
    return done, run_dir


def test_each_strikes_and_is_undone_and_a_correct_job_goes_on(cluster, run):
    done, run_dir = run
    said = done.stdout + done.stderr
    check_proofs(run_dir, said)
    assert done.returncode == 0, said
    assert cluster.left() == ""


def test_an_agent_that_is_cut_off_gives_back_by_its_own_clock(run):
    _done, run_dir = run
    events = list(journal.Reading(run_dir / journal.NAME).events())
    (begun,) = (e for e in events if isinstance(e, InjectionInForce) and "does not answer the API" in e.proof.evidence)
    (ended,) = (e for e in events if isinstance(e, InjectionReverted) and e.injection == begun.injection)
    assert "eth0 is up, carrier 1" in ended.proof.evidence, ended
    assert "addresses, routes and neighbours given back" in ended.proof.evidence, ended
    assert "before, eth0 is down, carrier 0" in ended.proof.evidence, ended
