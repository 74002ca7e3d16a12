"""Which nodes of the cluster a run uses, and for whom: replicas go where there is what they ask for. No I/O."""

from __future__ import annotations

from typing import Any

from chaos.model.errors import BadInput
from chaos.model.topology import CONTROL_NODE, Topology
from chaos.platforms.kubernetes.client import Object
from chaos.platforms.kubernetes.options import Options

Places = dict[str, dict[str, str]]


def place(topology: Topology, available: list[str], suited: frozenset[str]) -> dict[str, str]:
    """A node of the cluster for each of the plan's. BadInput when there are too few.

    Lighthouse and controller get one for themselves; one that is of no use to replicas, if there is such a one.
    """
    planned = [node for node in topology.nodes() if node != CONTROL_NODE]
    if len(planned) >= len(available):
        raise BadInput(
            f"the plan has {len(planned) + 1} nodes, one of them for lighthouse and controller; the cluster has "
            f"{len(available)} with an agent; type --set topology.nodes={max(1, len(available) - 1)}"
        )
    for_replicas = sorted(suited.intersection(available))
    if len(planned) > len(for_replicas):
        raise BadInput(
            f"the plan has {len(planned)} nodes for replicas; {len(for_replicas)} of the cluster's have the resources "
            "and labels that job and replica ask for in the platform file; type --set topology.nodes=NUMBER, or ask "
            "for less"
        )
    *_, last = *for_replicas, *sorted(set(available) - suited)
    return {**dict(zip(planned, for_replicas, strict=False)), CONTROL_NODE: last}


def suited(nodes: list[Object], options: Options) -> frozenset[str]:
    """The nodes that have the devices, and bear the labels, that replicas ask for."""
    devices, labels = _asked(options)
    return frozenset(
        node["metadata"]["name"]
        for node in nodes
        if all(int(node["status"]["allocatable"].get(device, 0)) >= number for device, number in devices.items())
        and labels.items() <= node["metadata"]["labels"].items()
    )


def _asked(options: Options) -> tuple[dict[str, int], dict[str, Any]]:
    devices: dict[str, int] = {}
    labels: dict[str, Any] = {}
    for part in (options.job, options.replica):
        limits = part.container.get("resources", {}).get("limits", {})
        devices |= {name: int(number) for name, number in limits.items() if "/" in name}  # Not cpu, not memory.
        labels |= part.pod.get("nodeSelector", {})
    return devices, labels


def places(nodes: list[Object], levels: tuple[str, ...]) -> Places:
    """Node -> level of the topology -> the domain it is in. BadInput when no node knows a level."""
    found: Places = {}
    for node in nodes:
        labels = node["metadata"]["labels"]
        found[node["metadata"]["name"]] = {level: labels[level] for level in levels if level in labels}
    for level in levels:
        if not any(level in place for place in found.values()):
            raise BadInput(f"levels: no node has the label {level}; see: kubectl get nodes --show-labels")
    return found
