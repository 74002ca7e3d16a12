"""Netlink: the little of it that links, queues and the proof of drops need, as messages of bytes.

A library was measured first: it took ten times as long per change (23 ms for a link, half of it a busy interpreter's
work), and half a second to import, which is how much longer faults would outlive a killed agent.
Layouts: rtnetlink(7), linux/rtnetlink.h, linux/netfilter/nf_tables.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

ROUTE, NETFILTER = 0, 12
"""Protocols."""
ANSWER_S = 1.0
_RECEIVE_BYTES = 256 * 1024
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_REQUEST, _ACK, DUMP, REPLACE, EXCLUSIVE, CREATE = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400
_ERROR, _DONE = 2, 3
_TYPE = 0x3FFF  # Without the flags for nesting and byte order.


class Message(NamedTuple):
    """Its type (RTM_...), the fixed part and attributes behind it."""

    kind: int
    body: bytes


class Netlink:
    """A socket in the network namespace in which the calling thread is now."""

    def __init__(self, protocol: int = ROUTE) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.settimeout(ANSWER_S)
        self._sequence = 0

    def __enter__(self) -> Netlink:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, kind: int, body: bytes, flags: int = 0) -> list[Message]:
        """Send one request; its answers once the kernel has carried it out. OSError with the kernel's errno."""
        self._sequence += 1
        flags |= _REQUEST | (0 if flags & DUMP == DUMP else _ACK)
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, self._sequence, 0) + body)
        answers: list[Message] = []
        while True:
            for message in self._receive():
                if message.kind in (_ERROR, _DONE):
                    number = -struct.unpack_from("=i", message.body)[0]
                    if number:
                        raise OSError(number, os.strerror(number))
                    return answers
                answers.append(message)

    def _receive(self) -> Iterator[Message]:
        data = self._socket.recv(_RECEIVE_BYTES)
        at = 0
        while at < len(data):
            length, kind, _flags, sequence, _pid = _HEADER.unpack_from(data, at)
            if sequence == self._sequence:
                yield Message(kind, data[at + _HEADER.size : at + length])
            at += length + 3 & ~3


def attribute(kind: int, data: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(data)
    return _ATTRIBUTE.pack(length, kind) + data + bytes(-length % 4)


def each(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """Attributes from offset `at` on: type and value."""
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        yield kind & _TYPE, body[at + _ATTRIBUTE.size : at + length]
        at += length + 3 & ~3


def attributes(body: bytes, at: int) -> dict[int, bytes]:
    """The same by type; of several of one type the last."""
    return dict(each(body, at))


# Interfaces.

_LINK = struct.Struct("=BxHiII")
_NEWLINK, _GETLINK = 16, 18
_IFLA_IFNAME, _IFLA_LINK, _IFLA_NET_NS_FD, _IFLA_CARRIER, _IFLA_NEW_IFINDEX = 3, 5, 28, 33, 49
_IFF_UP = 1


class Interface(NamedTuple):
    number: int
    up: bool
    """Set up by an administrator; it may have no carrier all the same."""
    carrier: bool
    other: int
    """Number of the interface at the far end of its cable, in whatever namespace that lies; 0 where there is none."""


def interface(netlink: Netlink, name: str) -> Interface | None:
    """None when there is no interface of this name here."""
    try:
        (answer,) = netlink.ask(_GETLINK, _LINK.pack(0, 0, 0, 0, 0) + attribute(_IFLA_IFNAME, name.encode() + b"\0"))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise
    _family, _type, index, flags, _change = _LINK.unpack_from(answer.body)
    found = attributes(answer.body, _LINK.size)
    up, carrier = bool(flags & _IFF_UP), found.get(_IFLA_CARRIER, b"\0") != b"\0"
    return Interface(index, up, up and carrier, int.from_bytes(found.get(_IFLA_LINK, b""), sys.byteorder))


def set_up(netlink: Netlink, index: int, up: bool) -> None:
    netlink.ask(_NEWLINK, _LINK.pack(0, 0, index, _IFF_UP if up else 0, _IFF_UP))


def move(netlink: Netlink, index: int, namespace: int, name: str, new_index: int = 0) -> None:
    """To the namespace behind an open file, under a name and, if given, a number there; it is down then."""
    body = _LINK.pack(0, 0, index, 0, 0) + attribute(_IFLA_IFNAME, name.encode() + b"\0")
    body += attribute(_IFLA_NET_NS_FD, namespace.to_bytes(4, sys.byteorder))
    if new_index:
        body += attribute(_IFLA_NEW_IFINDEX, new_index.to_bytes(4, sys.byteorder))
    netlink.ask(_NEWLINK, body)


def rename(netlink: Netlink, index: int, name: str) -> None:
    """The interface must be down."""
    netlink.ask(_NEWLINK, _LINK.pack(0, 0, index, 0, 0) + attribute(_IFLA_IFNAME, name.encode() + b"\0"))
