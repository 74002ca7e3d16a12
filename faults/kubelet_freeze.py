"""`kubelet.freeze`: a node's kubelet hangs."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.api import Aim, Fault, FreezeKubelet, Injection


class KubeletFreeze(Fault, frozen=True):
    """Stop the kubelet of a node where it is, and let it go on later; the node's replicas train on.

    Why it happens: a kubelet that waits for a container runtime or a volume that hangs, a host that is out of memory
    or process ids. The cluster calls the node not ready while its pods do well; whoever believes the cluster, and
    starts them again elsewhere, has two of each.
    """

    name = "kubelet.freeze"
    roles = frozenset({"node"})
    removes = False

    def injections(self, aim: Aim) -> Iterable[Injection]:
        return map(FreezeKubelet, aim.targets)
