"""RDMA ports of one namespace: down, shaped, or gone from it with their net devices.

One resource for all rails, since a lease may be about one or all. Nothing is done to the RDMA device itself: its port
follows its net device. A net device that is gone lies in the agent's own namespace meanwhile, under a name of ours; a
device that is a program of the kernel (soft RoCE) ends with the move and is made again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress

from chaos.agent.linux import netlink, rdma, traffic
from chaos.agent.linux.links import find, forgotten, keep, say_again
from chaos.agent.linux.namespaces import inside
from chaos.agent.linux.netem import Wish, together
from chaos.agent.linux.netlink import Netlink
from chaos.agent.linux.rdma import Port
from chaos.agent.linux.resource import Gone, Lease, NotInForce, Resource, State
from chaos.model.injections import PortDown, PortGone, PortInjection, PortShape
from chaos.model.site import Link, Namespace

ROOT, BELOW = 0xC4070000, 0xC4080000
_OWN = "/proc/thread-self/ns/net"
_STATE_S = 1.0
"""For a port to follow its net device."""
_ACTIVE = "ACTIVE"

Rail = dict[str, str]
"""What a rail was like: its device and net device, and what the kernel forgets of that."""


class Rails(Resource):
    """The RDMA ports whose net devices lie in one namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self.key = f"rails {namespace.inode}"

    def before(self) -> State:
        with inside(self._namespace), Netlink() as kernel:
            found = rdma.rails()
            if not found:
                raise NotInForce(_why_none(rdma.ports()))
            return {str(n): json.dumps(self._look(kernel, port)) for n, port in enumerate(found)}

    def _look(self, kernel: Netlink, port: Port) -> Rail:
        here = find(kernel, Link(self._namespace, port.interface))
        return {
            "device": port.device,
            "state": port.state,
            "soft": port.soft,
            "interface": port.interface,
            "index": str(here.number),
            "up": str(here.up),
            "saved": keep(forgotten(kernel, here.number, moved=True)),
            "queue": traffic.foreign(kernel, here.number, ROOT),
        }

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        rails = [json.loads(text) for text in before.values()]
        wishes = [wish for lease in leases if isinstance(wish := lease.grant.injection, PortInjection)]
        for wish in wishes:
            if wish.rail is not None and wish.rail >= len(rails):
                there = ", ".join(f"{number} ({rail['device']})" for number, rail in enumerate(rails))
                raise NotInForce(f"there is no rail {wish.rail} in {wish.target}; there are: {there}")
        by_rail = [[wish for wish in wishes if wish.rail in (None, number)] for number in range(len(rails))]
        for rail, mine in zip(rails, by_rail, strict=True):
            if any(isinstance(wish, PortGone) for wish in mine):
                self._take(rail)
            else:
                self._give_back(rail)
                self._set(rail, mine, bool(leases))
        told = (self._told(rail, mine, bool(leases)) for rail, mine in zip(rails, by_rail, strict=True))
        return "; ".join(f"rail {number}: {text}" for number, text in enumerate(told))

    def _set(self, rail: Rail, wishes: list[PortInjection], held: bool) -> None:
        wish = _shape(wishes)
        if wish != Wish() and not rail["soft"]:
            raise NotInForce(f"{rail['device']} sends past the kernel's queues: only its port can be taken down")
        if wish != Wish() and rail["queue"]:
            raise NotInForce(f"{rail['interface']} has a queue of someone else's at its root: {rail['queue']}")
        up = rail["up"] == str(True) and not _down(wishes)
        with inside(self._namespace), Netlink() as kernel:
            here = find(kernel, self._link(rail), rail["index"])
            netlink.set_up(kernel, here.number, up)
            if up and not (held and here.up):  # At the end always: an agent may have died before it came to this.
                say_again(kernel, rail["saved"])
            if rail["soft"] and rail["device"] not in [port.device for port in rdma.ports()]:
                rdma.add_soft(rail["device"], rail["soft"], rail["interface"])
            traffic.shape(kernel, here.number, wish, rail["interface"], ROOT, BELOW)

    def _told(self, rail: Rail, wishes: list[PortInjection], held: bool) -> str:
        """What is read back; without leases it must be as it was. NotInForce otherwise."""
        if any(isinstance(wish, PortGone) for wish in wishes):
            return self._told_gone(rail)
        with inside(self._namespace), Netlink() as kernel:
            carrier = find(kernel, self._link(rail), rail["index"]).carrier
            active = carrier and not _down(wishes) if held else rail["state"] == _ACTIVE
            state = _state(rail["device"], active)
        wish = _shape(wishes)
        shaped = f", {rail['interface']} has {wish}" if wish != Wish() else ""
        return f"the port of {rail['device']} is {state}, {rail['interface']} has carrier {carrier:d}{shaped}"

    def _told_gone(self, rail: Rail) -> str:
        with inside(self._namespace), Netlink() as kernel:
            if netlink.interface(kernel, rail["interface"]) is not None:
                raise NotInForce(f"{rail['interface']} is in the namespace")
            left = [port.device for port in rdma.rails()]
        if rail["device"] in left:
            raise NotInForce(f"{rail['device']} has a port that leads to a net device here")
        return f"{rail['interface']} has left with the port of {rail['device']}, {len(left)} ports are left"

    def _take(self, rail: Rail) -> None:
        home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with inside(self._namespace), Netlink() as kernel:
                if netlink.interface(kernel, rail["interface"]) is not None:
                    netlink.move(kernel, find(kernel, self._link(rail), rail["index"]).number, home, self._aside(rail))
        finally:
            os.close(home)

    def _give_back(self, rail: Rail) -> None:
        """Back into the namespace, down and bare."""
        with Netlink() as kernel:
            aside = netlink.interface(kernel, self._aside(rail))
            if aside is None:
                return
            try:
                with inside(self._namespace):
                    there = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
            except Gone:
                with suppress(OSError):  # It stays on the node, by the name it had; another one may have that.
                    netlink.rename(kernel, aside.number, rail["interface"])
                raise
            try:
                netlink.move(kernel, aside.number, there, rail["interface"], int(rail["index"]))
            finally:
                os.close(there)

    def _link(self, rail: Rail) -> Link:
        return Link(self._namespace, rail["interface"])

    def _aside(self, rail: Rail) -> str:
        return f"tc{self._namespace.inode:x}-{int(rail['index']):x}"


def _down(wishes: list[PortInjection]) -> bool:
    return any(isinstance(wish, PortDown) for wish in wishes)


def _shape(wishes: list[PortInjection]) -> Wish:
    return together(wish for wish in wishes if isinstance(wish, PortShape))


def _state(device: str, active: bool) -> str:
    """The port's state, which follows that of its net device."""
    deadline = time.monotonic() + _STATE_S
    while True:
        states = [port.state for port in rdma.rails() if port.device == device]
        if states and (states[0] == _ACTIVE) is active:
            return states[0]
        if time.monotonic() > deadline:
            wanted = _ACTIVE if active else "DOWN"
            raise NotInForce(f"the port of {device} is {' '.join(states) or 'gone'}, not {wanted}")
        time.sleep(0.01)


def _why_none(seen: list[Port]) -> str:
    if not seen:
        return "there is no RDMA device here"
    named = ", ".join(sorted({port.device for port in seen}))
    return f"{named} can be seen here, but their net devices are in other namespaces, so they are not the target's"
