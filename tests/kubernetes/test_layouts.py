"""The same experiment whoever keeps the replicas: a MonarchMesh or a StatefulSet, one for all or one for each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.conftest import CHECKOUT, KUBE, TOY, Cluster, until

CRD = Path(KUBE, "monarchmesh-crd.yaml")
MESHES = "monarchmeshes.monarch.pytorch.org"
TWO_NODES = ("--set", "topology.nodes=2")


@pytest.fixture(scope="module")
def meshes(cluster: Cluster) -> Iterator[None]:
    """The cluster knows meshes; nobody keeps them yet."""
    if not CRD.is_file():
        pytest.skip("set TORCHCHAOS_KUBE: its monarchmesh-crd.yaml is what the Monarch operator installs")
    assert cluster.kubectl("apply", "--server-side", "-f", str(CRD)).returncode == 0
    until(lambda: cluster.kubectl("get", MESHES).returncode == 0, "meshes are known")
    yield
    cluster.kubectl("delete", "crd", MESHES)


@pytest.fixture
def operator(cluster: Cluster, meshes: None) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.kubernetes.mesh_operator"]
    with subprocess.Popen(command, env=cluster.env, cwd=CHECKOUT) as program:
        yield
        program.kill()


def with_layout(cluster: Cluster, folder: Path, **more: object) -> Cluster:
    """The same cluster, with a platform file that says more."""
    file = folder / "platform.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(cluster.file.read_text()), **more}))
    return Cluster(cluster.env, file, cluster.namespace)


def test_without_the_operator_a_mesh_is_refused_with_what_to_type(cluster, tmp_path):
    if cluster.kubectl("get", "crd", MESHES).returncode == 0:
        pytest.skip("this cluster knows meshes")
    done = with_layout(cluster, tmp_path, layout="mesh").run("steady", tmp_path / "runs", *TOY)
    assert done.returncode == 64, done.stdout + done.stderr
    assert "layout mesh needs the Monarch operator" in done.stderr
    assert "type layout: statefulset" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("layout", ["mesh", "mesh-per-replica", "statefulset"])
def test_a_lost_replica_comes_back_in_every_layout(cluster, operator, tmp_path, judged, layout):
    done = with_layout(cluster, tmp_path, layout=layout).run("replica-lost", tmp_path / "runs", *TOY, *TWO_NODES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(judged(tmp_path / "runs").values()) == {"PASS"}
    assert cluster.left() == ""
    assert cluster.kubectl("get", MESHES, "-o", "name").stdout == ""


def test_where_the_operator_is_installed_one_mesh_has_all_replicas(cluster, operator, tmp_path):
    done = cluster.run("node-drain", tmp_path / "runs", *TOY)
    assert done.returncode == 64, done.stdout + done.stderr
    assert "needs moves" in done.stderr


def test_a_mesh_that_nobody_keeps_ends_the_run_with_what_is_missing(cluster, meshes, tmp_path):
    done = with_layout(cluster, tmp_path, layout="mesh").run("steady", tmp_path / "runs", *TOY, *TWO_NODES)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the Monarch operator does not run" in done.stderr
    assert cluster.left() == ""
