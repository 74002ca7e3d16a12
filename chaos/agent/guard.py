"""Whom the agent never touches: itself, who started it, the machine, and the client that asks."""

from __future__ import annotations

import os
from collections.abc import Iterator

from chaos.agent.linux.freeze import members, started
from chaos.agent.linux.resource import NotInForce
from chaos.agent.wire import Grant
from chaos.model.injections import Drop
from chaos.model.site import Namespace, Site


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
    for namespace in _namespaces(site):
        for pid, who in protected.items():
            if namespace.inode == _namespace_of(pid):
                raise NotInForce(f"network namespace {namespace.inode} of {site.name} is that of {who}")
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


def _namespaces(site: Site) -> Iterator[Namespace]:
    for nic in site.nics.values():
        yield nic.link.namespace
        if nic.peer:
            yield nic.peer.namespace


def _namespace_of(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None
