"""Links down, and everything back that the kernel forgets of a link that is down.

Where the interface has a peer (a pod's veth), the peer goes down: the target then sees what a dead cable or switch port
looks like, no carrier. Its addresses, routes and neighbours stay as they are, and it cannot undo it. An interface
without one (a VF, an uplink) goes down itself; its IPv6 addresses, routes and permanent neighbours, which the kernel
drops then, are kept as the netlink messages that tell of them, and said again afterwards.
"""

from __future__ import annotations

import base64
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from chaos.agent.linux.namespaces import inside
from chaos.agent.linux.resource import Gone, Lease, NotInForce, Resource, State
from chaos.model.site import Link, Nic

ANSWER_S = 1.0
_ANSWER_BYTES = 8192
_HEADER = struct.Struct("=IHHII")
_NUD_PERMANENT = 0x80
_IFF_UP = 1
_TABLE_LOCAL = 255
_PROTO_KERNEL = 2
_REPLACE = 0x1 | 0x4 | 0x100 | 0x400  # NLM_F_REQUEST, _ACK, _REPLACE, _CREATE
_RTM_NEWADDR = 20
_IFA_FLAGS, _IFA_F_NODAD = 8, 0x02


class Cable(Resource):
    """The link of one interface."""

    def __init__(self, nic: Nic) -> None:
        self._nic = nic
        self._end = nic.peer or nic.link
        self.key = f"link {self._end.namespace.inode} {self._end.interface}"

    def before(self) -> State:
        with inside(self._end.namespace), IPRoute() as ip:
            link = find(ip, self._end)
            saved = [base64.b64encode(raw).decode() for raw in _state(ip, link["index"])]
            return {"index": str(link["index"]), "up": str(link["flags"] & _IFF_UP), "saved": " ".join(saved)}

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        up = not leases and before["up"] == "1"
        with inside(self._end.namespace), IPRoute() as ip:
            index = find(ip, self._end, before["index"])["index"]
            ip.link("set", index=index, state="up" if up else "down")
            saved = [base64.b64decode(text) for text in before["saved"].split()]
            if up:
                _say_again(saved)
            now = find(ip, self._end)
        if bool(now["flags"] & _IFF_UP) != up:
            raise NotInForce(f"{self._end.interface} is {now['state']} although it was set {'up' if up else 'down'}")
        carrier = self._carrier()
        if not up and carrier:
            raise NotInForce(f"{self._nic.link.interface} still has its carrier")
        parts = [f"{self._nic.link.interface} is {'up' if up else 'down'}, carrier {carrier}"]
        if self._nic.peer:
            parts[0] = (
                f"{self._nic.link.interface} has carrier {carrier}, its peer {self._end.interface} is {now['state']}"
            )
        elif up:
            parts.append(f"{len(saved)} addresses, routes and neighbours given back")
        return ", ".join(parts)

    def _carrier(self) -> int:
        with inside(self._nic.link.namespace), IPRoute() as ip:
            link = find(ip, self._nic.link)
            return int(link.get_attr("IFLA_CARRIER") or 0) if link["flags"] & _IFF_UP else 0


def find(ip: IPRoute, link: Link, index: str | None = None) -> Any:
    """The interface's netlink message; Gone when it, or that of this index, is no more."""
    try:
        (found,) = ip.link("get", ifname=link.interface)
    except NetlinkError as error:
        raise Gone(f"interface {link.interface} is gone from network namespace {link.namespace.inode}") from error
    if index is not None and found["index"] != int(index):
        raise Gone(f"interface {link.interface} with index {index} is gone, its name is of index {found['index']} now")
    return found


def _state(ip: IPRoute, index: int) -> list[bytes]:
    """Messages that would make what the kernel forgets when the interface goes down, in the order to say them."""
    addresses = [m for m in ip.get_addr(family=socket.AF_INET6, index=index) if m["index"] == index]
    routes = [m for m in ip.get_routes(oif=index) if m["table"] != _TABLE_LOCAL and m["proto"] != _PROTO_KERNEL]
    routes.sort(key=lambda m: m.get_attr("RTA_GATEWAY") is not None or m.get_attr("RTA_VIA") is not None)
    neighbours = [m for m in ip.get_neighbours(ifindex=index) if m["state"] & _NUD_PERMANENT]
    return [_raw(message) for message in (*addresses, *neighbours, *routes)]


def _raw(message: Any) -> bytes:
    """A message's type and body as they came from the kernel; the rest of its header differs each time."""
    start, length = message.offset, message["header"]["length"]
    body = bytearray(message.data[start + _HEADER.size : start + length])
    kind = message["header"]["type"]
    if kind == _RTM_NEWADDR:
        _mark_unique(body)
    return struct.pack("=H", kind) + bytes(body)


def _mark_unique(address: bytearray) -> None:
    """Spare an IPv6 address the second in which the kernel looks for another owner of it: it was in use before."""
    at = 8
    while at < len(address):
        length, kind = struct.unpack_from("=HH", address, at)
        if kind == _IFA_FLAGS:
            address[at + 4] |= _IFA_F_NODAD
        at += length + 3 & ~3


def _say_again(messages: list[bytes]) -> None:
    """Send messages of `_state` as requests to create or replace, in the calling thread's namespace."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as netlink:
        netlink.bind((0, 0))
        netlink.settimeout(ANSWER_S)
        for number, message in enumerate(messages, 1):
            (kind,), body = struct.unpack_from("=H", message), message[2:]
            netlink.send(_HEADER.pack(_HEADER.size + len(body), kind, _REPLACE, number, 0) + body)
            (error,) = struct.unpack_from("=i", netlink.recv(_ANSWER_BYTES), _HEADER.size)
            if error:
                raise NotInForce(f"an address or route could not be given back: {os.strerror(-error)}")
