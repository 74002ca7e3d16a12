"""Which kernel state an injection is about."""

from __future__ import annotations

from chaos.agent.linux.cgroups import CpuV1, CpuV2, IoV1, IoV2, MemoryV1, MemoryV2, Pids
from chaos.agent.linux.disks import Filling
from chaos.agent.linux.drops import Table
from chaos.agent.linux.freeze import Freezer, Processes
from chaos.agent.linux.links import Cable
from chaos.agent.linux.rails import Rails
from chaos.agent.linux.resource import NotInForce, Resource
from chaos.agent.linux.trace import Stopped
from chaos.agent.linux.traffic import Queue
from chaos.agent.wire import Grant
from chaos.model.injections import (
    CpuLimit,
    Direction,
    DiskFill,
    Drop,
    Freeze,
    FreezeKubelet,
    Interface,
    IoLimit,
    LinkDown,
    MemoryLimit,
    PortDown,
    PortGone,
    PortShape,
    ProcessLimit,
    Shape,
)
from chaos.model.site import Namespace, Nic, Site


def resource(grant: Grant) -> Resource:
    """The resource of a grant; NotInForce when its site has none of the kind. Touches nothing."""
    site = grant.site
    match grant.injection:
        case LinkDown(interface=interface):
            return Cable(_nic(site, interface))
        case Drop():
            return Table(_namespace(site))
        case Shape(interface=interface, direction=direction):
            nic = _nic(site, interface)
            return Queue(nic.peer if nic.peer and direction is Direction.IN else nic.link)
        case PortDown() | PortShape() | PortGone():
            return Rails(_namespace(site))
        case CpuLimit():
            return CpuV1(site.groups["cpu"]) if "cpu" in site.groups else CpuV2(_unified(site, "cpu"))
        case MemoryLimit():
            return MemoryV1(site.groups["memory"]) if "memory" in site.groups else MemoryV2(_unified(site, "memory"))
        case IoLimit():
            folder = site.disk or _folder(site)
            return IoV1(site.groups["blkio"], folder) if "blkio" in site.groups else IoV2(_unified(site, "io"), folder)
        case ProcessLimit():
            return Pids(site.groups["pids"] if "pids" in site.groups else _unified(site, "pids"))
        case Freeze():
            return Freezer(site.unified) if site.unified else Processes(site)
        case FreezeKubelet():
            if site.process is None:
                raise NotInForce(f"{site.name} has no kubelet that is known")
            return Stopped(site.process)
        case DiskFill():
            return Filling(_folder(site))


def _nic(site: Site, interface: Interface) -> Nic:
    if interface not in site.nics:
        raise NotInForce(f"{site.name} has no {interface.value} interface")
    return site.nics[interface]


def _namespace(site: Site) -> Namespace:
    if site.process is None:
        raise NotInForce(f"{site.name} is a node, whose members have namespaces of their own: aim at its members")
    if not site.nics:
        raise NotInForce(f"{site.name} has no network namespace of its own")
    return next(iter(site.nics.values())).link.namespace


def _unified(site: Site, controller: str) -> str:
    if site.unified is None:
        raise NotInForce(f"{site.name} has no cgroup with the controller {controller}")
    return site.unified


def _folder(site: Site) -> str:
    if site.folder is None:
        raise NotInForce(f"{site.name} has no folder for disk faults")
    return site.folder
