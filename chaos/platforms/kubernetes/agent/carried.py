"""What the pods of this node have sent and received, by path; only of those that have, or had, RDMA ports."""

from __future__ import annotations

import os
from contextlib import suppress

from chaos.agent.linux import rdma
from chaos.agent.linux.meter import Meter
from chaos.agent.linux.namespaces import inside
from chaos.agent.linux.resource import Gone
from chaos.model.site import Namespace
from chaos.platforms.kubernetes.agent.pods import NodePods


class Carried:
    """A meter for each pod, from when it was first seen."""

    def __init__(self, pods: NodePods) -> None:
        self._pods = pods
        self._own = os.stat("/proc/self/ns/net").st_ino
        self._meters: dict[str, Meter] = {}

    def look(self) -> dict[str, tuple[int | None, int]]:
        """Bytes over RDMA and over net devices, by the pod's id."""
        if not rdma.ports():
            return {}
        found = {}
        for uid, pid in self._pods.running():
            with suppress(OSError, Gone):  # It has just ended.
                there = Namespace(f"/proc/{pid}/ns/net", os.stat(f"/proc/{pid}/ns/net").st_ino)
                if uid not in self._meters and there.inode != self._own and _has_rails(there):
                    self._meters[uid] = Meter(there)
                if uid in self._meters:
                    found[uid] = self._meters[uid].look()
        self._meters = {uid: meter for uid, meter in self._meters.items() if uid in found}
        return found


def _has_rails(namespace: Namespace) -> bool:
    with inside(namespace):
        return bool(rdma.rails())
