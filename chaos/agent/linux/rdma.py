"""RDMA devices as the kernel tells of them by netlink, in the namespace of the calling thread.

A port belongs to a namespace when its net device lies there. With shared devices, the default, everyone sees all of
them; with exclusive ones a namespace sees its own.
Layouts: rdma/rdma_netlink.h.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import struct
from typing import NamedTuple

from chaos.agent.linux.netlink import DUMP, Netlink, attribute, attributes

_PROTOCOL = 20
_GET, _NEWLINK, _PORT_GET, _SYS_GET = (5 << 10 | command for command in (1, 3, 5, 6))
_DEV_INDEX, _DEV_NAME, _PORT_INDEX, _PORT_STATE, _NDEV_INDEX, _NDEV_NAME, _LINK_TYPE = 1, 2, 3, 12, 50, 51, 65
_NETNS_MODE = 66
_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
_CLASS = "/sys/class/infiniband"


class Port(NamedTuple):
    """`interface` is the name of its net device and `rail` its number here; nothing where that is in another namespace.
    `soft` is the kind of a device that is a program of the kernel (rxe, siw), empty for a card.
    """

    device: str
    port: int
    state: str
    interface: str
    soft: str
    rail: int | None = None

    def __str__(self) -> str:
        where = "its net device is elsewhere" if self.rail is None else f"rail {self.rail} by {self.interface}"
        return f"{self.device}/{self.port} {self.state} ({where})"


def ports() -> list[Port]:
    """Every port that is seen here, in the order of the devices' names, numbers in them by value."""
    try:
        kernel = Netlink(_PROTOCOL)
    except OSError as error:
        if error.errno == errno.EPROTONOSUPPORT:
            return []
        raise
    found = []
    with kernel:
        for device in kernel.ask(_GET, b"", DUMP):
            index = attributes(device.body, 0)[_DEV_INDEX]
            for message in kernel.ask(_PORT_GET, attribute(_DEV_INDEX, index), DUMP):
                found.append(_port(attributes(message.body, 0)))
    numbers = itertools.count()
    ordered = sorted(found, key=lambda port: (_by_number(port.device), port.port))
    return [port._replace(rail=next(numbers)) if port.interface else port for port in ordered]


def rails() -> list[Port]:
    """The ports of this namespace: rail 0, rail 1 and so on."""
    return [port for port in ports() if port.rail is not None]


def exclusive() -> bool:
    """Whether devices belong to one namespace each."""
    with Netlink(_PROTOCOL) as kernel:
        (answer,) = kernel.ask(_SYS_GET, b"")
        return attributes(answer.body, 0).get(_NETNS_MODE, b"\1") == b"\0"


def add_soft(device: str, kind: str, interface: str) -> None:
    """Make a device that is a program of the kernel over a net device."""
    names = {_DEV_NAME: device, _LINK_TYPE: kind, _NDEV_NAME: interface}
    with Netlink(_PROTOCOL) as kernel:
        kernel.ask(_NEWLINK, b"".join(attribute(name, text.encode() + b"\0") for name, text in names.items()))


def _port(found: dict[int, bytes]) -> Port:
    device = found[_DEV_NAME].rstrip(b"\0").decode()
    (number,) = struct.unpack("=I", found[_PORT_INDEX])
    interface = found.get(_NDEV_NAME, b"").rstrip(b"\0").decode()
    return Port(device, number, _STATES[found[_PORT_STATE][0]], interface, _soft(device))


def _soft(device: str) -> str:
    """A device without hardware below it says of which kind it is."""
    if os.path.exists(f"{_CLASS}/{device}/device") or not os.path.exists(f"{_CLASS}/{device}"):
        return ""
    with open(f"{_CLASS}/{device}/node_desc") as file:
        return file.read().strip()


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
