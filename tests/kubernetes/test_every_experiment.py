"""Every shipped experiment on a real Kubernetes with the toy job, from the same files as on local pods."""

from __future__ import annotations

import pytest
import yaml

from chaos.load import load, shipped
from chaos.plan import plan
from tests.experiments.test_every_experiment import NAMES, check_proofs, shortened

LACKS = {"moves", "netem"}
"""What not every layout or kernel has: refused by name."""

MTBF_S = 6.0
"""Slower than on local pods: a life takes seconds to come back here, and faults that wait for one would pile up."""


@pytest.mark.parametrize("name", NAMES)
def test_the_fault_strikes_and_is_undone_and_a_correct_job_passes(cluster, tmp_path, judged, name):
    data = shortened(shipped()[name])
    data.setdefault("topology", {})["nodes"] = 2
    for mix in data.get("mixes", []):
        mix["repeat"]["mtbf_s"] = MTBF_S
    path = tmp_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    needed = {need for fault in plan(load(str(path))).faults for need in fault.needs}
    done = cluster.run(path, tmp_path / "runs")
    said = done.stdout + done.stderr
    if done.returncode == 64:
        assert needed & LACKS, said
        assert any(f"needs {need}" in said or f", {need}" in said for need in needed & LACKS), said
        return
    (run_dir,) = (tmp_path / "runs").iterdir()
    check_proofs(run_dir, said)
    assert done.returncode == 0, said
    outcomes = judged(tmp_path / "runs")
    assert (outcomes["fault_in_force"], outcomes["fault_reverted"]) == ("PASS", "PASS"), said
    assert cluster.left() == ""
