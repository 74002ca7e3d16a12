"""Shaped traffic: one queue of our own at the root of an interface, known by its handle.

A rate is a token bucket (tbf), delay and jitter are netem, both together a tbf below the netem. Where someone else has
put a queue at the root, nothing is done: it could not be given back. The queue an interface had by default comes back
by itself when ours goes.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from chaos.agent.linux.links import find
from chaos.agent.linux.namespaces import inside
from chaos.agent.linux.resource import Lease, NotInForce, Resource, State
from chaos.model.injections import Shape
from chaos.model.site import Link

ROOT, BELOW = 0xC4050000, 0xC4060000
"""Our handles."""
_AT_ROOT = 0xFFFFFFFF
_NETEM_PACKETS_MAX = 100_000
_BURST_BYTES_MIN = 64 * 1024
_BURST_S = 0.005
_QUEUE_S = "50ms"

Wanted = tuple[int | None, float, float]
"""Rate in bytes/s, delay and jitter in microseconds."""


class Queue(Resource):
    """What leaves by one interface."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._now: Wanted | None = None
        self.key = f"queue {link.namespace.inode} {link.interface}"

    def before(self) -> State:
        with inside(self._link.namespace), IPRoute() as ip:
            index = find(ip, self._link)["index"]
            for queue in _queues(ip, index):
                if queue["parent"] == _AT_ROOT and queue["handle"] not in (0, ROOT):
                    kind = queue.get_attr("TCA_KIND")
                    raise NotInForce(f"{self._link.interface} has a queue of someone else's at its root: {kind}")
            return {"index": str(index)}

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        wanted = _together(leases)
        with inside(self._link.namespace), IPRoute() as ip:
            index = find(ip, self._link, before["index"])["index"]
            ours = {q["handle"] for q in _queues(ip, index)} & {ROOT, BELOW}
            if wanted != self._now or not ours:
                self._now = None
                if ROOT in ours:
                    ip.tc("del", index=index, handle=ROOT, parent=_AT_ROOT)
                if wanted:
                    _put(ip, index, *wanted)
                self._now = wanted
            return self._prove(_queues(ip, index), wanted)

    def _prove(self, queues: list[Any], wanted: Wanted | None) -> str:
        found = {queue["handle"]: queue for queue in queues if queue["handle"] in (ROOT, BELOW)}
        if not wanted:
            if found:
                raise NotInForce(f"the queue {ROOT >> 16:x}: is still on {self._link.interface}")
            return f"no queue of ours on {self._link.interface}"
        rate, delay_us, _jitter = wanted
        seen = {queue.get_attr("TCA_KIND"): queue for queue in found.values()}
        if set(seen) != {kind for kind, here in (("tbf", rate), ("netem", delay_us)) if here}:
            raise NotInForce(f"{self._link.interface} has queues {sorted(seen)} of ours, not what was asked for")
        parts = []
        if rate:
            parms = seen["tbf"].get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")
            parts.append(f"a rate of {parms['rate'] * 8} bit/s")
        if delay_us:
            delay = seen["netem"].get_attr("TCA_OPTIONS")
            parts.append(
                f"netem with delay {delay['delay']} and jitter {delay['jitter']} ticks for {delay_us / 1000} ms"
            )
        return f"{self._link.interface} has {' and '.join(parts)} at {ROOT >> 16:x}:"


def _together(leases: Sequence[Lease]) -> Wanted | None:
    shapes = [lease.grant.injection for lease in leases if isinstance(lease.grant.injection, Shape)]
    if not shapes:
        return None
    rates = [shape.rate_bit_s // 8 for shape in shapes if shape.rate_bit_s]
    delay_ms = max(shape.delay_ms or 0.0 for shape in shapes)
    jitter_ms = max(shape.jitter_ms or 0.0 for shape in shapes)
    return min(rates, default=None), delay_ms * 1000, jitter_ms * 1000


def _put(ip: IPRoute, index: int, rate: int | None, delay_us: float, jitter_us: float) -> None:
    parent = _AT_ROOT
    if delay_us:
        try:
            netem = {"delay": delay_us, "jitter": jitter_us, "limit": _NETEM_PACKETS_MAX}
            ip.tc("add", "netem", index, handle=ROOT, parent=parent, **netem)
        except NetlinkError as error:
            if error.code == errno.ENOENT:
                raise NotInForce("this kernel has no netem, which delays need: load its module sch_netem") from error
            raise
        parent = ROOT | 1
    if rate:
        burst = max(_BURST_BYTES_MIN, int(rate * _BURST_S))
        handle = BELOW if delay_us else ROOT
        ip.tc("add", "tbf", index, handle=handle, parent=parent, rate=rate, burst=burst, latency=_QUEUE_S)


def _queues(ip: IPRoute, index: int) -> list[Any]:
    return [queue for queue in ip.get_qdiscs(index) if queue["index"] == index]
