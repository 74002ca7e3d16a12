"""The same experiment whoever keeps the replicas: a MonarchMesh or a StatefulSet, one for all or one for each."""

from __future__ import annotations

import pytest

from tests.kubernetes.conftest import MESHES, TOY

TWO_NODES = ("--set", "topology.nodes=2")


def test_without_the_operator_a_mesh_is_refused_with_what_to_type(cluster, tmp_path):
    if cluster.kubectl("get", "crd", MESHES).returncode == 0:
        pytest.skip("this cluster knows meshes")
    done = cluster.saying(tmp_path, layout="mesh").run("steady", tmp_path / "runs", *TOY)
    assert done.returncode == 64, done.stdout + done.stderr
    assert "layout mesh needs the Monarch operator" in done.stderr
    assert "type layout: statefulset" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("layout", ["mesh", "mesh-per-replica", "statefulset"])
def test_a_lost_replica_comes_back_in_every_layout(cluster, operator, tmp_path, judged, layout):
    done = cluster.saying(tmp_path, layout=layout).run("replica-lost", tmp_path / "runs", *TOY, *TWO_NODES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(judged(tmp_path / "runs").values()) == {"PASS"}
    assert cluster.left() == ""
    assert cluster.kubectl("get", MESHES, "-o", "name").stdout == ""


def test_where_the_operator_is_installed_one_mesh_has_all_replicas(cluster, operator, tmp_path):
    done = cluster.run("node-drain", tmp_path / "runs", *TOY)
    assert done.returncode == 64, done.stdout + done.stderr
    assert "needs moves" in done.stderr


def test_a_mesh_that_nobody_keeps_ends_the_run_with_what_is_missing(cluster, meshes, tmp_path):
    done = cluster.saying(tmp_path, layout="mesh").run("steady", tmp_path / "runs", *TOY, *TWO_NODES)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the Monarch operator does not run" in done.stderr
    assert cluster.left() == ""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"queue": {"name": "team"}}, "this cluster has no Kueue; install it, or remove queue"),
        ({"layout": "statefulset", "queue": {"name": "team", "pod_group": True}}, "remove queue.pod_group"),
        ({"levels": ["example.com/row"]}, "no node has the label example.com/row"),
    ],
)
def test_what_the_platform_file_asks_in_vain_is_one_line_and_64(cluster, tmp_path, more, message):
    done = cluster.saying(tmp_path, **more).run("steady", tmp_path / "runs", *TOY)
    assert done.returncode == 64, done.stdout + done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()
