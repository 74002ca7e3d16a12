"""What is installed can be taken out again, and what is missing is said with the text to type."""

from __future__ import annotations

import yaml

from tests.kubernetes.conftest import TOY

KINDS = "customresourcedefinitions,clusterroles,clusterrolebindings,validatingadmissionpolicies"


def test_uninstalled_means_gone_and_a_run_says_what_to_type(cluster, tmp_path):
    file = ("--platform-file", cluster.file)
    printed = list(yaml.safe_load_all(cluster.chaos("install", "kubernetes", *file, "--print").stdout))
    assert printed[-1]["metadata"]["name"] == cluster.namespace
    assert installed(cluster)
    try:
        done = cluster.chaos("uninstall", "kubernetes", *file)
        assert done.returncode == 0, done.stderr
        assert not installed(cluster)
        refused = cluster.run("steady", tmp_path / "runs", *TOY)
        assert refused.returncode == 64
        assert "type: chaos install kubernetes" in refused.stderr
        assert not (tmp_path / "runs").exists()
    finally:
        again = cluster.chaos("install", "kubernetes", *file)
    assert again.returncode == 0, again.stderr


def installed(cluster) -> list[str]:
    names = cluster.kubectl("get", KINDS, "-o", "name").stdout.split()
    return [name for name in names if "torchchaos" in name]
