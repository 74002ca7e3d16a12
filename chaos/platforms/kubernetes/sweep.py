"""Removes what belongs to a run: at its end, when somebody wants that now, and what killed runners left behind.

A run whose Lease was not renewed for `DEAD_S` is dead. Nothing of it does harm by then: the agents have given back what
it had them hold.
"""

from __future__ import annotations

import anyio

from chaos.model.ports import PlatformLost
from chaos.platforms.kubernetes.client import Kube, KubeError
from chaos.platforms.kubernetes.clocks import age_s
from chaos.platforms.kubernetes.objects import ABORTED, KUEUE, RUN, Names

DEAD_S = 60.0
"""Far longer than the Lease's time to live: clocks of two machines are compared here."""
REMOVE_S = 60.0
RUNNER_S = 20.0
"""For a living runner to see that it is aborted, and to remove everything by itself."""
POLL_S = 0.1
GRACE_S = 1
QUEUE_HOLDS = f"{KUEUE}/managed"
"""Finalizer of a pod that a queue admits. It waits for a successor of the dead one, unless the claim is withdrawn."""


async def find_dead(kube: Kube, namespace: str) -> list[Names]:
    """The runs in a namespace whose runner is surely gone."""
    leases = await kube.get(Names("", namespace).leases, labelSelector=RUN)
    dead = [item for item in leases["items"] if age_s(item["spec"]["renewTime"]) > DEAD_S]
    return [Names(item["metadata"]["name"], namespace) for item in dead]


async def abort(kube: Kube, namespace: str) -> list[Names]:
    """End every run in a namespace: its faults at once, then the run, by its runner if that lives. The runs."""
    leases = await kube.get(Names("", namespace).leases, labelSelector=RUN)
    runs = [Names(item["metadata"]["name"], namespace) for item in leases["items"]]
    for names in runs:
        await kube.merge(f"{names.leases}/{names.run}", {"metadata": {"annotations": {ABORTED: "yes"}}})
        for item in (await kube.get(names.injections, labelSelector=names.selector))["items"]:
            await kube.delete(f"{names.injections}/{item['metadata']['name']}")
    with anyio.move_on_after(RUNNER_S):
        while (await kube.get(Names("", namespace).leases, labelSelector=RUN))["items"]:
            await anyio.sleep(POLL_S)
    for names in runs:
        await remove(kube, names)
    return runs


async def remove_dead(kube: Kube, namespace: str) -> None:
    for names in await find_dead(kube, namespace):
        await remove(kube, names)


async def remove(kube: Kube, names: Names) -> None:
    """Remove everything of a run, and see it gone. PlatformLost says what is left.

    Pods get a second to end: an object deleted without grace is gone while its container still runs.
    """
    left: list[str] = []
    with anyio.move_on_after(REMOVE_S):
        while True:
            try:
                left = await _remove_once(kube, names)
                if not left:
                    return
            except KubeError as error:
                left = [str(error)]
            await anyio.sleep(POLL_S)
    raise PlatformLost(f"could not remove {', '.join(left)} of run {names.run} within {REMOVE_S:g} s")


async def _remove_once(kube: Kube, names: Names) -> list[str]:
    """Ask for the end of what is there; garbage collection takes the rest with the Lease. What is there still."""
    left = []
    pods, injections = f"{names.core}/pods", names.injections
    for path in (
        names.meshes,
        names.sets,
        injections,
        pods,
        f"{names.core}/services",
        f"{names.core}/configmaps",
        names.leases,
    ):
        try:
            listed = await kube.get(path, labelSelector=names.selector)
        except KubeError as error:
            if path != names.meshes or error.status != 404:
                raise
            continue  # This cluster knows no meshes.
        for item in listed["items"]:
            meta = item["metadata"]
            left.append(f"{path.rpartition('/')[2]} {meta['name']}")
            if "deletionTimestamp" not in meta or (path == pods and meta["deletionGracePeriodSeconds"] > GRACE_S):
                options = {"gracePeriodSeconds": GRACE_S} if path == pods else {"propagationPolicy": "Background"}
                await kube.delete(f"{path}/{meta['name']}", options)
            elif QUEUE_HOLDS in meta.get("finalizers", []):
                await _withdraw(kube, names, meta["labels"][f"{KUEUE}/pod-group-name"])
    return left


async def _withdraw(kube: Kube, names: Names, claim: str) -> None:
    version = (await kube.get(f"/apis/{KUEUE}"))["preferredVersion"]["groupVersion"]
    await kube.delete(f"/apis/{version}/namespaces/{names.namespace}/workloads/{claim}")
