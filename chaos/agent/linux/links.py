"""Links down, and everything back that the kernel forgets of a link that is down.

Where the interface has a peer (a pod's veth), the peer goes down: the target then sees what a dead cable or switch port
looks like, no carrier. Its addresses, routes and neighbours stay as they are, and it cannot undo it. An interface
without one (a VF, an uplink) goes down itself. What the kernel drops of an interface that goes down - IPv6 addresses,
routes, permanent neighbours - is kept as the messages that told of it, and said again afterwards.
"""

from __future__ import annotations

import base64
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence

from chaos.agent.linux import netlink
from chaos.agent.linux.namespaces import inside
from chaos.agent.linux.netlink import DUMP, Message, Netlink, attributes
from chaos.agent.linux.resource import Gone, Lease, NotInForce, Resource, State
from chaos.model.site import Link, Nic

_GETADDR, _GETROUTE, _GETNEIGH = 22, 26, 30
_ADDRESS = struct.Struct("=BBBBI")
_ROUTE = struct.Struct("=BBBBBBBBI")
_NEIGHBOUR = struct.Struct("=BxxxiHBB")
_NEXT_HOP = struct.Struct("=HBBi")
_IFA_FLAGS, _IFA_F_NODAD = 8, 0x02
_IFA_PROTO, _KERNEL_MADE = 11, b"\3"
"""A link-local address that the kernel gives every interface that goes up."""
_RTA_OIF, _RTA_GATEWAY, _RTA_MULTIPATH, _RTA_VIA = 4, 5, 9, 18
_WITHOUT_CARRIER = 0x01 | 0x10
"""Flags of routes and next hops, dead and linkdown: the kernel tells them, and takes no route that has them."""
_TABLE_LOCAL, _PROTO_KERNEL, _NUD_PERMANENT = 255, 2, 0x80


class Cable(Resource):
    """The link of one interface."""

    def __init__(self, nic: Nic) -> None:
        self._nic = nic
        self._end = nic.peer or nic.link
        self.key = f"link {self._end.namespace.inode} {self._end.interface}"

    def before(self) -> State:
        with inside(self._end.namespace), Netlink() as kernel:
            end = find(kernel, self._end)
            saved = keep(forgotten(kernel, end.number))
            return {"index": str(end.number), "up": str(end.up), "saved": saved}

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        up = not leases and before["up"] == str(True)
        with inside(self._end.namespace), Netlink() as kernel:
            index = find(kernel, self._end, before["index"]).number
            netlink.set_up(kernel, index, up)
            saved = say_again(kernel, before["saved"]) if up else 0
            end = find(kernel, self._end)
        if end.up != up:
            raise NotInForce(f"{self._end.interface} did not go {_word(up)}")
        if not self._nic.peer:
            given_back = f", {saved} addresses, routes and neighbours given back" if up else ""
            return f"{self._end.interface} is {_word(up)}, carrier {end.carrier:d}{given_back}"
        with inside(self._nic.link.namespace), Netlink() as kernel:
            carrier = find(kernel, self._nic.link).carrier
        if carrier and not up:
            raise NotInForce(f"{self._nic.link.interface} has its carrier although its peer is down")
        return f"{self._nic.link.interface} has carrier {carrier:d}, its peer {self._end.interface} is {_word(up)}"


def keep(messages: Iterable[Message]) -> str:
    """As text, for a ledger."""
    return " ".join(base64.b64encode(m.kind.to_bytes(2) + m.body).decode() for m in messages)


def say_again(kernel: Netlink, kept: str) -> int:
    """Tell the kernel what was kept; how many messages that were."""
    messages = [base64.b64decode(text) for text in kept.split()]
    for raw in messages:
        kernel.ask(int.from_bytes(raw[:2]), raw[2:], netlink.CREATE | netlink.REPLACE)
    return len(messages)


def find(kernel: Netlink, link: Link, index: str | None = None) -> netlink.Interface:
    """The interface; Gone when it, or the one that had this index, is no more."""
    found = netlink.interface(kernel, link.interface)
    if found is None or index not in (None, str(found.number)):
        raise Gone(f"interface {link.interface} is gone from network namespace {link.namespace.inode}")
    return found


def _word(up: bool) -> str:
    return "up" if up else "down"


def forgotten(kernel: Netlink, index: int, moved: bool = False) -> Iterator[Message]:
    """What the kernel forgets of an interface that goes down, in the order in which to say it again; of one that is
    moved to another namespace, its IPv4 addresses too.
    """
    for family in (socket.AF_INET, socket.AF_INET6) if moved else (socket.AF_INET6,):
        for message in kernel.ask(_GETADDR, _ADDRESS.pack(family, 0, 0, 0, 0), DUMP):
            found = attributes(message.body, _ADDRESS.size)
            if _ADDRESS.unpack_from(message.body)[4] == index and found.get(_IFA_PROTO) != _KERNEL_MADE:
                yield Message(message.kind, _without_search(message.body))
    for message in kernel.ask(_GETNEIGH, _NEIGHBOUR.pack(0, 0, 0, 0, 0), DUMP):
        _family, interface, state, _flags, _type = _NEIGHBOUR.unpack_from(message.body)
        if interface == index and state & _NUD_PERMANENT:
            yield message
    lost = [m for m in kernel.ask(_GETROUTE, _ROUTE.pack(*[0] * 9), DUMP) if _is_lost(m.body, index)]
    routes = [Message(m.kind, _as_with_carrier(m.body)) for m in lost]
    yield from sorted(routes, key=lambda m: bool(attributes(m.body, _ROUTE.size).keys() & {_RTA_GATEWAY, _RTA_VIA}))


def _is_lost(route: bytes, index: int) -> bool:
    """Whether this is a route by the interface that the kernel does not make again by itself."""
    table, protocol = route[4], route[5]
    found = attributes(route, _ROUTE.size)
    out = {int.from_bytes(found[_RTA_OIF], sys.byteorder)} if _RTA_OIF in found else set()
    hops, at = found.get(_RTA_MULTIPATH, b""), 0
    while at < len(hops):
        length, _flags, _weight, interface = _NEXT_HOP.unpack_from(hops, at)
        out.add(interface)
        at += length
    return index in out and table != _TABLE_LOCAL and protocol != _PROTO_KERNEL


def _as_with_carrier(route: bytes) -> bytes:
    """The link may have none just now, by another fault for instance."""
    *fixed, flags = _ROUTE.unpack_from(route)
    hops = ((kind, _hops(data) if kind == _RTA_MULTIPATH else data) for kind, data in netlink.each(route, _ROUTE.size))
    return _ROUTE.pack(*fixed, flags & ~_WITHOUT_CARRIER) + b"".join(netlink.attribute(*one) for one in hops)


def _hops(told: bytes) -> bytes:
    hops, at = bytearray(told), 0
    while at < len(hops):
        length, flags, weight, interface = _NEXT_HOP.unpack_from(hops, at)
        _NEXT_HOP.pack_into(hops, at, length, flags & ~_WITHOUT_CARRIER, weight, interface)
        at += length
    return bytes(hops)


def _without_search(address: bytes) -> bytes:
    """Spare an IPv6 address the second in which the kernel looks for another owner of it: it was in use before."""
    flags = int.from_bytes(attributes(address, _ADDRESS.size).get(_IFA_FLAGS, b""), sys.byteorder)
    return address + netlink.attribute(_IFA_FLAGS, (flags | _IFA_F_NODAD).to_bytes(4, sys.byteorder))
