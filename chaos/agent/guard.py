"""Whom the agent never touches: itself, who started it, the machine, and the client that asks."""

from __future__ import annotations

import os

from chaos.agent.linux.freeze import members, started
from chaos.agent.linux.links import find
from chaos.agent.linux.namespaces import inside
from chaos.agent.linux.netlink import Interface, Netlink
from chaos.agent.linux.resource import Gone, NotInForce
from chaos.agent.wire import Grant
from chaos.model.injections import Drop, FreezeKubelet, LinkDown
from chaos.model.site import Link, Nic, Site


def check(grant: Grant, client: int) -> None:
    """NotInForce with the reason to refuse. `client` is the pid of who asks, 0 when it cannot be seen from here."""
    site = grant.site
    if site.name != grant.injection.target:
        raise NotInForce(f"the site is {site.name}'s, the injection is for {grant.injection.target}")
    if isinstance(grant.injection, Drop):
        unknown = [name for name in grant.injection.peers if not grant.peers.get(name)]
        if unknown:
            raise NotInForce(f"no address is known of {', '.join(unknown)}")
    protected = {os.getpid(): "the agent", os.getppid(): "the agent's parent", 1: "process 1", client: "the client"}
    protected.pop(0, None)
    _check_process(site, protected)
    if site.machine and not isinstance(grant.injection, FreezeKubelet | LinkDown):
        raise NotInForce(f"{site.name} is the machine of {protected[os.getpid()]}: aim at its members")
    for nic in () if site.machine else site.nics.values():
        _check_nic(site, nic, protected)
    for group in filter(None, (*site.groups.values(), site.unified)):
        for pid in members(group):
            if pid in protected:
                raise NotInForce(f"{protected[pid]} is in the cgroup {group} of {site.name}")


def _check_process(site: Site, protected: dict[int, str]) -> None:
    main = site.process
    if main is None:
        return
    if main.pid in protected:
        raise NotInForce(f"the main process of {site.name} is {protected[main.pid]}")
    if started(main.pid) != main.started_ticks:
        raise NotInForce(f"{site.name}.{site.incarnation} is not alive: process {main.pid} is gone")


def _check_nic(site: Site, nic: Nic, protected: dict[int, str]) -> None:
    """A pod's cable ends on its node, where the agent may live as well: the far end of it is the pod's all the same."""
    for link in filter(None, (nic.link, nic.peer)):
        inode = link.namespace.inode
        who = next((who for pid, who in protected.items() if inode == _namespace_of(pid)), None)
        if who and not (link is nic.peer and _is_far_end(nic.link, link)):
            raise NotInForce(f"network namespace {inode} of {site.name} is that of {who}")


def _is_far_end(link: Link, peer: Link) -> bool:
    """Whether the kernel says of each of the two that the other is its far end."""
    try:
        near, far = (_look(end) for end in (link, peer))
    except Gone:
        return False
    return near.number == far.other and far.number == near.other


def _look(end: Link) -> Interface:
    with inside(end.namespace), Netlink() as kernel:
        return find(kernel, end)


def _namespace_of(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None
