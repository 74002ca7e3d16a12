"""Queues and filters of an interface, as netlink tells of them. Layouts: linux/pkt_sched.h, linux/rtnetlink.h."""

from __future__ import annotations

import struct

from chaos.agent.linux.netlink import DUMP, Message, Netlink, attributes

AT_ROOT = 0xFFFFFFFF
NEWQDISC, DELQDISC, GETQDISC = 36, 37, 38
NEWFILTER, DELFILTER, GETFILTER = 44, 45, 46
QUEUE = struct.Struct("=BxxxiIII")
"""Family, interface, handle, parent, and of a filter its place and protocol."""
KIND, OPTIONS = 1, 2


def queues(kernel: Netlink, index: int) -> dict[int, tuple[int, str, bytes]]:
    """Queues of one interface: handle -> parent, kind, options."""
    found = {}
    for message in kernel.ask(GETQDISC, QUEUE.pack(0, index, 0, 0, 0), DUMP):
        _family, interface, handle, parent, _info = QUEUE.unpack_from(message.body)
        if interface == index:
            more = attributes(message.body, QUEUE.size)
            found[handle] = parent, more[KIND].rstrip(b"\0").decode(), more.get(OPTIONS, b"")
    return found


def filters(kernel: Netlink, index: int, parent: int) -> list[Message]:
    """Filters of one interface at one hook."""
    return kernel.ask(GETFILTER, QUEUE.pack(0, index, 0, parent, 0), DUMP)
