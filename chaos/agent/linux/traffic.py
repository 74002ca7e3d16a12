"""Shaped traffic: one queue of our own at the root of an interface, known by its handle.

A rate is a token bucket (tbf), delay and jitter are netem, both together a tbf below the netem. Where someone else has
put a queue at the root, nothing is done: it could not be given back. The queue an interface had by default comes back
by itself when ours goes.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence

from chaos.agent.linux.links import find
from chaos.agent.linux.namespaces import inside
from chaos.agent.linux.netlink import CREATE, DUMP, EXCLUSIVE, Netlink, attribute, attributes
from chaos.agent.linux.resource import Lease, NotInForce, Resource, State
from chaos.model.injections import Shape
from chaos.model.site import Link

ROOT, BELOW = 0xC4050000, 0xC4060000
"""Our handles."""
_AT_ROOT = 0xFFFFFFFF
_NETEM_PACKETS_MAX = 100_000
_BURST_BYTES_MIN = 64 * 1024
_BURST_S = 0.005
_QUEUE_S = 0.05

_NEWQDISC, _DELQDISC, _GETQDISC = 36, 37, 38
_QUEUE = struct.Struct("=BxxxiIII")
_KIND, _OPTIONS = 1, 2
_TBF_PARMS, _TBF_BURST = 1, 6
_TBF = struct.Struct("=BBHhHI12xIII")
_ETHERNET = 1
_NETEM = struct.Struct("=IIIIII")
_NETEM_LATENCY64, _NETEM_JITTER64 = 10, 11

Wanted = tuple[int, int, int]
"""Rate in bytes/s, delay and jitter in nanoseconds; 0 for none."""


class Queue(Resource):
    """What leaves by one interface."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.key = f"queue {link.namespace.inode} {link.interface}"

    def before(self) -> State:
        with inside(self._link.namespace), Netlink() as kernel:
            index = find(kernel, self._link).number
            for handle, (parent, kind, _options) in _queues(kernel, index).items():
                if parent == _AT_ROOT and handle not in (0, ROOT):
                    raise NotInForce(f"{self._link.interface} has a queue of someone else's at its root: {kind}")
            return {"index": str(index)}

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        wanted = _together(leases)
        with inside(self._link.namespace), Netlink() as kernel:
            index = find(kernel, self._link, before["index"]).number
            if _ours(kernel, index) != wanted:
                if ROOT in _queues(kernel, index):
                    kernel.ask(_DELQDISC, _QUEUE.pack(0, index, ROOT, _AT_ROOT, 0))
                _put(kernel, index, *wanted)
            found = _ours(kernel, index)
        if found != wanted:
            raise NotInForce(f"{self._link.interface} has {_text(found)} although {_text(wanted)} was asked for")
        return f"{self._link.interface} has {_text(found)}"


def _text(found: Wanted) -> str:
    rate, delay_ns, jitter_ns = found
    parts = [f"a rate of {rate * 8} bit/s"] if rate else []
    parts += [f"a delay of {delay_ns / 1e6:g} +- {jitter_ns / 1e6:g} ms"] if delay_ns else []
    return f"{' and '.join(parts)} at {ROOT >> 16:x}:" if parts else "no queue of ours"


def _together(leases: Sequence[Lease]) -> Wanted:
    shapes = [lease.grant.injection for lease in leases if isinstance(lease.grant.injection, Shape)]
    rates = [shape.rate_bit_s // 8 for shape in shapes if shape.rate_bit_s]
    delay_ms = max((shape.delay_ms or 0.0 for shape in shapes), default=0.0)
    jitter_ms = max((shape.jitter_ms or 0.0 for shape in shapes), default=0.0)
    return min(rates, default=0), round(delay_ms * 1e6), round(jitter_ms * 1e6)


def _put(kernel: Netlink, index: int, rate: int, delay_ns: int, jitter_ns: int) -> None:
    parent = _AT_ROOT
    if delay_ns:
        times = attribute(_NETEM_LATENCY64, struct.pack("=q", delay_ns))
        times += attribute(_NETEM_JITTER64, struct.pack("=q", jitter_ns))
        try:
            _add(kernel, index, ROOT, parent, "netem", _NETEM.pack(0, _NETEM_PACKETS_MAX, 0, 0, 0, 0) + times)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            raise NotInForce("this kernel has no netem, which delays need: load its module sch_netem") from error
        parent = ROOT | 1
    if rate:
        burst = max(_BURST_BYTES_MIN, int(rate * _BURST_S))
        limit = int(rate * _QUEUE_S) + burst
        parms = attribute(_TBF_PARMS, _TBF.pack(0, _ETHERNET, 0, 0, 0, rate, limit, 0, 0))
        options = parms + attribute(_TBF_BURST, struct.pack("=I", burst))
        _add(kernel, index, BELOW if delay_ns else ROOT, parent, "tbf", options)


def _add(kernel: Netlink, index: int, handle: int, parent: int, kind: str, options: bytes) -> None:
    body = _QUEUE.pack(0, index, handle, parent, 0) + attribute(_KIND, kind.encode() + b"\0")
    kernel.ask(_NEWQDISC, body + attribute(_OPTIONS, options), CREATE | EXCLUSIVE)


def _queues(kernel: Netlink, index: int) -> dict[int, tuple[int, str, bytes]]:
    """Queues of one interface: handle -> parent, kind, options."""
    queues = {}
    for message in kernel.ask(_GETQDISC, _QUEUE.pack(0, index, 0, 0, 0), DUMP):
        _family, interface, handle, parent, _info = _QUEUE.unpack_from(message.body)
        if interface == index:
            found = attributes(message.body, _QUEUE.size)
            queues[handle] = parent, found[_KIND].rstrip(b"\0").decode(), found.get(_OPTIONS, b"")
    return queues


def _ours(kernel: Netlink, index: int) -> Wanted:
    """What our queues do, as the kernel tells it."""
    rate = delay_ns = jitter_ns = 0
    for handle, (_parent, kind, options) in _queues(kernel, index).items():
        if handle in (ROOT, BELOW) and kind == "tbf":
            rate = _TBF.unpack_from(attributes(options, 0)[_TBF_PARMS])[5]
        elif handle in (ROOT, BELOW) and kind == "netem":
            times = attributes(options, _NETEM.size)
            delay_ns, jitter_ns = (struct.unpack("=q", times[n])[0] for n in (_NETEM_LATENCY64, _NETEM_JITTER64))
    return rate, delay_ns, jitter_ns
