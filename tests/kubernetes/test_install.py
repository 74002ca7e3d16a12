"""What is installed can be taken out again, and what is missing is said with the text to type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

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
        assert "this cluster has no version of torchchaos.dev" in refused.stderr
        with other_version(cluster, printed[0]):
            refused = cluster.run("steady", tmp_path / "runs", *TOY)
        assert refused.returncode == 64
        assert "this cluster has v1alpha0 of torchchaos.dev, and v1alpha1 is needed" in refused.stderr
        assert not (tmp_path / "runs").exists()
    finally:
        again = cluster.chaos("install", "kubernetes", *file)
    assert again.returncode == 0, again.stderr


@contextmanager
def other_version(cluster, definition) -> Iterator[None]:
    """Injections of a version that this one does not speak."""
    definition["spec"]["versions"][0]["name"] = "v1alpha0"
    name = f"crd/{definition['metadata']['name']}"
    assert cluster.kubectl("create", "-f", "-", text=json.dumps(definition)).returncode == 0
    assert cluster.kubectl("wait", "--for=condition=Established", name, "--timeout=20s").returncode == 0
    yield
    assert cluster.kubectl("delete", name).returncode == 0


def installed(cluster) -> list[str]:
    names = cluster.kubectl("get", KINDS, "-o", "name").stdout.split()
    return [name for name in names if "torchchaos" in name]
