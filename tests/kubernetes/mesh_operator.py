"""A stand-in for the Monarch operator, for tests only: a real controller against a real API server.

    python -m tests.kubernetes.mesh_operator        (as KUBECONFIG says, until it is killed)

It does what the operator 0.2.0 was seen to do. A MonarchMesh becomes a headless Service `<mesh>-svc` that does not
publish pods that are not ready, and a StatefulSet `<mesh>` whose pods come in parallel; both are owned by the mesh.
The mesh's labels go to the StatefulSet, its podTemplate to the pods. Its status tells how many of them are ready.
"""

from __future__ import annotations

import logging
from typing import Any

import anyio

from chaos.platforms.kubernetes.client import Kube, KubeError, connect
from chaos.platforms.kubernetes.clocks import micro_time

Object = dict[str, Any]

API = "monarch.pytorch.org/v1alpha1"
WORKER = {"app.kubernetes.io/name": "monarch-worker"}
MESH = "monarch.pytorch.org/mesh-name"

log = logging.getLogger("mesh operator")


class Operator:
    """Reconciles each mesh whenever it, or its StatefulSet, has changed."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._meshes: dict[tuple[str, str], Object] = {}
        self._sets: dict[tuple[str, str], Object] = {}
        self._changed = anyio.Event()

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            nobody = {"labelSelector": MESH}
            tasks.start_soon(self._kube.follow, f"/apis/{API}/monarchmeshes", self._mesh, self._mesh_gone)
            tasks.start_soon(self._kube.follow, "/apis/apps/v1/statefulsets", self._set, self._set_gone, nobody)
            while True:
                changed = self._changed
                for key, mesh in list(self._meshes.items()):
                    try:
                        await self._reconcile(key, mesh)
                    except KubeError as error:
                        log.warning("%s: %s", key, error)
                await changed.wait()

    async def _reconcile(self, key: tuple[str, str], mesh: Object) -> None:
        namespace, name = key
        if "deletionTimestamp" in mesh["metadata"]:
            return
        if key not in self._sets:
            await self._kube.apply(f"/api/v1/namespaces/{namespace}/services/{name}-svc", service(mesh))
            await self._kube.apply(f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}", stateful_set(mesh))
        told = status(mesh, self._sets.get(key, {}))
        if told != mesh.get("status"):
            path = f"/apis/{API}/namespaces/{namespace}/monarchmeshes/{name}/status"
            self._meshes[key] = await self._kube.merge(path, {"status": told})

    def _mesh(self, item: Object) -> None:
        self._meshes[key_of(item)] = item
        self._wake()

    def _mesh_gone(self, item: Object) -> None:
        self._meshes.pop(key_of(item), None)

    def _set(self, item: Object) -> None:
        self._sets[key_of(item)] = item
        self._wake()

    def _set_gone(self, item: Object) -> None:
        self._sets.pop(key_of(item), None)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def key_of(item: Object) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def owned(mesh: Object, kind: str, api: str, name: str) -> Object:
    meta = mesh["metadata"]
    owner = {"apiVersion": API, "kind": "MonarchMesh", "name": meta["name"], "uid": meta["uid"]}
    head = {"name": name, "namespace": meta["namespace"]}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {**head, "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]},
    }


def selector(mesh: Object) -> dict[str, str]:
    return {**WORKER, MESH: mesh["metadata"]["name"]}


def service(mesh: Object) -> Object:
    port = {"name": "monarch", "port": mesh["spec"]["port"], "protocol": "TCP"}
    spec = {"clusterIP": "None", "selector": selector(mesh), "ports": [port]}
    return {**owned(mesh, "Service", "v1", f"{mesh['metadata']['name']}-svc"), "spec": spec}


def stateful_set(mesh: Object) -> Object:
    meta, template = mesh["metadata"], mesh["spec"]["podTemplate"]
    body = owned(mesh, "StatefulSet", "apps/v1", meta["name"])
    body["metadata"]["labels"] = {**meta.get("labels", {}), **selector(mesh)}
    labels = {**template.get("metadata", {}).get("labels", {}), **selector(mesh)}
    body["spec"] = {
        "replicas": mesh["spec"]["replicas"],
        "serviceName": f"{meta['name']}-svc",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": selector(mesh)},
        "template": {"metadata": {**template.get("metadata", {}), "labels": labels}, "spec": template["spec"]},
    }
    return body


def status(mesh: Object, kept: Object) -> Object:
    wanted, ready = mesh["spec"]["replicas"], kept.get("status", {}).get("readyReplicas", 0)
    whole = ready == wanted
    before = {one["type"]: one for one in mesh.get("status", {}).get("conditions", [])}.get("Ready", {})
    condition = {
        "type": "Ready",
        "status": str(whole),
        "reason": "AllReady" if whole else "Waiting",
        "message": f"{ready} of {wanted} pods are ready",
    }
    same = before.get("status") == condition["status"]
    condition["lastTransitionTime"] = before["lastTransitionTime"] if same else micro_time()[:19] + "Z"
    return {"replicas": wanted, "readyReplicas": ready, "conditions": [condition]}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    anyio.run(Operator(connect()).run)
