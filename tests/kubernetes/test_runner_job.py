"""The runner as a Job inside the cluster, from the file that is shipped."""

from __future__ import annotations

from pathlib import Path

import yaml

from chaos.platforms.kubernetes.options import laid_over
from tests.kubernetes.conftest import CHECKOUT, TOY, Cluster, until

JOB = "torchchaos-runner"


def adapted(cluster: Cluster) -> str:
    """The shipped manifests with this cluster's images, and with the toy job."""
    items = list(yaml.safe_load_all((CHECKOUT / "chaos/platforms/kubernetes/deploy/runner.yaml").read_text()))
    program = yaml.safe_load(Path(cluster.file).read_text())["agent"]
    for item in items:
        item["metadata"]["namespace"] = cluster.namespace
        if item["kind"] == "ConfigMap":
            item["data"]["platform.yaml"] = cluster.file.read_text()
        if item["kind"] == "Job":
            spec = item["spec"]["template"]["spec"]
            container = laid_over({**spec["containers"][0], "image": program["image"]}, program.get("container", {}))
            container["command"] = [
                program["python"],
                "-c",
                "from chaos.cli import main; main()",
                *container["command"][1:],
            ]
            container["args"] += TOY
            item["spec"]["template"]["spec"] = laid_over({**spec, "containers": [container]}, program.get("pod", {}))
    return yaml.safe_dump_all(items)


def test_a_job_in_the_cluster_runs_an_experiment_to_its_verdict(cluster):
    assert cluster.kubectl("apply", "-f", "-", text=adapted(cluster)).returncode == 0
    try:
        ended = ("get", "job", JOB, "-o", "jsonpath={.status.conditions[*].type}")
        until(lambda: {"Complete", "Failed"} & set(cluster.kubectl(*ended).stdout.split()), "the Job ended", 150)
        log = cluster.kubectl("logs", f"job/{JOB}").stdout
        assert "Complete" in cluster.kubectl(*ended).stdout, log
        assert "PASS" in log
    finally:
        cluster.kubectl("delete", "-f", "-", text=adapted(cluster))
    assert cluster.left() == ""
