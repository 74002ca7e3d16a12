"""What `chaos doctor` says of a cluster: everything found, and for each lack what to type."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.kubernetes.conftest import Cluster


def said(cluster: Cluster) -> dict[str, str]:
    """Name of each check -> its line, which begins with yes or no."""
    done = cluster.chaos("doctor", "--platform", "kubernetes", "--platform-file", cluster.file)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(("yes", "no "))]
    return {line[4:].split("  ")[0].strip(): " ".join(line.split()) for line in lines}


def test_every_node_tells_what_it_is_and_what_it_lacks(cluster):
    wide = Cluster({**cluster.env, "COLUMNS": "400"}, cluster.file, cluster.namespace)
    lines = said(wide)
    for name in ("API server", "rights", "namespace", "injections"):
        assert lines[name].startswith("yes"), lines[name]
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    for node in nodes:
        name, info = node["metadata"]["name"], node["status"]["nodeInfo"]
        assert f"kernel {info['kernelVersion']}" in lines[name]
        assert lines[f"{name} agent"].startswith("yes")
        assert "cgroup v" in lines[f"{name} network"]
        assert "eth0" in lines[f"{name} network"]


def test_each_lack_comes_with_its_remedy(cluster, tmp_path):
    asks = {"queue": {"name": "team"}, "namespace": "default", "node_interfaces": {"data": "ib7"}}
    asking = cluster.saying(tmp_path, **asks)
    lines = said(Cluster({**cluster.env, "COLUMNS": "400"}, asking.file, "default"))
    assert "kubectl label namespace default torchchaos.dev/chaos=enabled" in lines["namespace"]
    assert "install Kueue, or remove queue" in lines["Kueue"]
    assert "install the Monarch operator" in lines["Monarch operator"]
    assert any(line.startswith("no") and "there is no ib7" in line for line in lines.values())


def test_a_cluster_that_does_not_answer_is_one_line(cluster, tmp_path):
    config = yaml.safe_load(Path(cluster.env["KUBECONFIG"]).read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    dead = Cluster({**cluster.env, "KUBECONFIG": str(tmp_path / "kubeconfig")}, cluster.file, cluster.namespace)
    lines = said(dead)
    assert list(lines) == ["API server"]
    assert "does not answer" in lines["API server"]
    done = dead.run("steady", tmp_path / "runs")
    assert done.returncode == 2
    assert "the cluster cannot be used" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()
