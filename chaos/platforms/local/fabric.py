"""Networks of a cluster: two bridges, nodes behind them, pods behind their nodes.

    fabric (the host's own namespace):  bridge control        bridge data
    node, a namespace each:             bridge control        bridge data      with one uplink to each above
    pod, a namespace each:              eth0                  net1             with addresses

So a node's network can be cut or slowed as a whole, and pods on one node still meet. There is no way out: the fabric
routes nowhere, and the machine's own network namespace holds nothing of it. A namespace lives as long as a process in
it or an open file on it; its links go with it.
"""

from __future__ import annotations

import os
from contextlib import suppress

from pyroute2 import IPRoute

from chaos.model.injections import Interface
from chaos.model.site import Link, Nic
from chaos.model.site import Namespace as NamespaceSite
from chaos.platforms.local import kernel

CONTROL, DATA = "eth0", "net1"
"""A pod's interfaces."""

_BRIDGES = {CONTROL: "control", DATA: "data"}
_ROLES = {CONTROL: Interface.CONTROL, DATA: Interface.DATA}
_BLOCKS = {CONTROL: "10.64", DATA: "10.65"}
_PREFIX_BITS = 16


class Namespace:
    """A network namespace that the caller holds open, with a netlink socket inside."""

    def __init__(self) -> None:
        home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            kernel.unshare(kernel.CLONE_NEWNET)
            try:
                self.fd = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                _no_ipv6()
                self.links = IPRoute()
            finally:
                kernel.setns(home, kernel.CLONE_NEWNET)
        finally:
            os.close(home)

    def close(self) -> None:
        self.links.close()
        os.close(self.fd)


class Fabric:
    """The bridges and nodes. Made by the host, in the host's own network namespace."""

    def __init__(self, nodes: tuple[str, ...]) -> None:
        _no_ipv6()
        self.links = IPRoute()
        _up(self.links, "lo")
        bridges = {interface: _bridge(self.links, name) for interface, name in _BRIDGES.items()}
        self.nodes = {name: Node(self.links, bridges, number) for number, name in enumerate(nodes)}


class Node:
    """A machine of the cluster: a namespace with bridges of its own, uplinked to the fabric's."""

    def __init__(self, fabric: IPRoute, above: dict[str, int], number: int) -> None:
        self.namespace = Namespace()
        links = self.namespace.links
        _up(links, "lo")
        self.bridges: dict[str, int] = {}
        for interface, name in _BRIDGES.items():
            self.bridges[interface] = _bridge(links, name)
            peer = {"ifname": f"{name}-up", "net_ns_fd": self.namespace.fd}
            link = f"{name}-{number}"
            fabric.link("add", ifname=link, kind="veth", master=above[interface], state="up", peer=peer)
            links.link("set", index=_index(links, f"{name}-up"), master=self.bridges[interface], state="up")

    def pod(self, number: int) -> Namespace:
        """A new pod's namespace, linked and with addresses; `number` is unique in the cluster."""
        namespace = Namespace()
        _up(namespace.links, "lo")
        for interface, bridge in self.bridges.items():
            peer = {"ifname": interface, "net_ns_fd": namespace.fd}
            link = f"{_BRIDGES[interface]}-{number}"
            self.namespace.links.link("add", ifname=link, kind="veth", master=bridge, state="up", peer=peer)
            index = _index(namespace.links, interface)
            namespace.links.addr("add", index=index, address=address(interface, number), prefixlen=_PREFIX_BITS)
            namespace.links.link("set", index=index, state="up")
        return namespace

    def nics(self) -> dict[Interface, Nic]:
        """The node's uplinks, for an injection."""
        here = _held(self.namespace)
        return {_ROLES[interface]: Nic(Link(here, f"{name}-up")) for interface, name in _BRIDGES.items()}

    def pod_nics(self, number: int, pod: Namespace, path: str) -> dict[Interface, Nic]:
        """A pod's interfaces, for an injection; `path` leads to the pod's namespace for as long as it lives."""
        here, there = _held(self.namespace), NamespaceSite(path, os.fstat(pod.fd).st_ino)
        return {
            _ROLES[interface]: Nic(
                Link(there, interface), Link(here, f"{name}-{number}"), (address(interface, number),)
            )
            for interface, name in _BRIDGES.items()
        }


def _held(namespace: Namespace) -> NamespaceSite:
    """A namespace that the host holds open, as its injector finds it."""
    return NamespaceSite(f"/proc/{os.getpid()}/fd/{namespace.fd}", os.fstat(namespace.fd).st_ino)


def address(interface: str, number: int) -> str:
    """The address of the pod with this number, counted from 0; the same host part on both interfaces."""
    assert 0 <= number < 250 * 250, "addresses are not reused within a cluster"
    return f"{_BLOCKS[interface]}.{number // 250}.{1 + number % 250}"


def _index(links: IPRoute, name: str) -> int:
    (index,) = links.link_lookup(ifname=name)
    return int(index)


def _up(links: IPRoute, name: str) -> None:
    links.link("set", index=_index(links, name), state="up")


def _bridge(links: IPRoute, name: str) -> int:
    links.link("add", ifname=name, kind="bridge", state="up")
    return _index(links, name)


def _no_ipv6() -> None:
    """New links of this namespace get no IPv6 address: programs find one address per interface, at once."""
    with suppress(OSError), open("/proc/sys/net/ipv6/conf/default/disable_ipv6", "w") as file:
        file.write("1")
