"""What a network namespace has sent and received, by path: RDMA ports and net devices.

Cards count the bytes of their ports, and none of them in their net devices. A program of the kernel (soft RoCE) counts
packets only, and they pass its net device as well: of what that moved between two looks, RDMA has the share of its
packets. That is exact while one path is in use, and a guess in between.
"""

from __future__ import annotations

from pathlib import Path

from chaos.agent.linux import rdma
from chaos.agent.linux.namespaces import inside
from chaos.agent.linux.rdma import Port
from chaos.model.site import Namespace

_CLASS = Path("/sys/class/infiniband")
_DEVICES = "/proc/thread-self/net/dev"
_WORD_BYTES = 4
"""Cards count words."""

_Moved = tuple[int, int]
"""Bytes and packets."""


class Meter:
    """Counts from its first look on."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._devices: dict[str, _Moved] = {}
        self._ports: dict[tuple[str, int], int] = {}
        self._rdma_bytes: int | None = None
        self._ethernet_bytes = 0

    def look(self) -> tuple[int | None, int]:
        """Bytes over RDMA, None as long as no port ever counted any, and bytes over net devices. Gone with the
        namespace.
        """
        with inside(self._namespace):
            ports, devices = rdma.rails(), _devices()
        moved = {name: _since(now, self._devices.get(name, now)) for name, now in devices.items()}
        over_ethernet = {name: moved_bytes for name, (moved_bytes, _packets) in moved.items()}
        for port in ports:
            counted = _counted(port)
            if counted is None:
                continue
            grown = max(0, counted - self._ports.get((port.device, port.port), counted))
            self._ports[port.device, port.port] = counted
            if port.soft:
                moved_bytes, packets = moved.get(port.interface, (0, 0))
                grown = round(moved_bytes * min(1.0, grown / packets)) if packets else 0
                over_ethernet[port.interface] = moved_bytes - grown
            self._rdma_bytes = (self._rdma_bytes or 0) + grown
        self._devices = devices
        self._ethernet_bytes += sum(over_ethernet.values())
        return self._rdma_bytes, self._ethernet_bytes


def _since(now: _Moved, before: _Moved) -> _Moved:
    return max(0, now[0] - before[0]), max(0, now[1] - before[1])


def _counted(port: Port) -> int | None:
    """Bytes of a card's port, packets of a soft one; None where neither is told."""
    folder = _CLASS / port.device / "ports" / str(port.port)
    try:
        if port.soft:
            return sum(int((folder / f"hw_counters/{way}_pkts").read_text()) for way in ("sent", "rcvd"))
        return _WORD_BYTES * sum(int((folder / f"counters/port_{way}_data").read_text()) for way in ("xmit", "rcv"))
    except OSError:
        return None


def _devices() -> dict[str, _Moved]:
    """Of each net device but the loopback, sent and received, in the namespace of the calling thread."""
    found = {}
    with open(_DEVICES) as file:
        for line in file.readlines()[2:]:
            name, _colon, numbers = line.partition(":")
            fields = list(map(int, numbers.split()))
            if name.strip() != "lo":
                found[name.strip()] = fields[0] + fields[8], fields[1] + fields[9]
    return found
