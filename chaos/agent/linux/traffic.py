"""Shaped traffic: one queue of our own for what leaves or reaches an interface, known by its handle.

A rate is a token bucket (tbf), all else is netem, both together a tbf below the netem. The queue goes to the root of
the interface; the one it had by default comes back by itself when ours goes. Where someone else has put a queue at the
root, and for what reaches an interface, packets take a detour: a filter leads them to an interface made for it (ifb),
whose queue is ours, and from there they go on as they would have. Nothing of anyone else's is touched.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from chaos.agent.linux import detour
from chaos.agent.linux.links import find
from chaos.agent.linux.namespaces import inside
from chaos.agent.linux.netem import Wish, netem_options, read, tbf_options, together
from chaos.agent.linux.netlink import CREATE, EXCLUSIVE, Netlink, attribute
from chaos.agent.linux.queues import AT_ROOT, DELQDISC, KIND, NEWQDISC, OPTIONS, QUEUE, queues
from chaos.agent.linux.resource import Lease, NotInForce, Resource, State
from chaos.model.injections import Direction, Shape
from chaos.model.site import Link

ROOT, BELOW = 0xC4050000, 0xC4060000
"""Our handles."""


class Queue(Resource):
    """What leaves by one interface, and what reaches it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.key = f"queue {link.namespace.inode} {link.interface}"

    def before(self) -> State:
        with inside(self._link.namespace), Netlink() as kernel:
            index = find(kernel, self._link).number
            return {"index": str(index), "root": foreign(kernel, index), "hook": detour.hook(kernel, index)}

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        said = []
        with inside(self._link.namespace), Netlink() as kernel:
            index = find(kernel, self._link, before["index"]).number
            for way in (Direction.OUT, Direction.IN):
                wish = together(_shape(lease) for lease in leases if _way(lease) is way)
                if way is Direction.OUT and not before["root"]:
                    found = shape(kernel, index, wish, self._link.interface)
                elif wish == Wish():
                    found = wish
                    detour.close(kernel, index, way)
                else:
                    aside = detour.open_(kernel, index, way)
                    found = shape(kernel, aside, wish, self._link.interface)
                    detour.lead(kernel, index, aside, way)
                said.append(f"{_text(found)} for what goes {way.value}")
            detour.give_hook_back(kernel, index, before["hook"])
        return f"{self._link.interface} has {' and '.join(said)} ({ROOT >> 16:x}:)"


def _shape(lease: Lease) -> Shape:
    assert isinstance(lease.grant.injection, Shape)
    return lease.grant.injection


def _way(lease: Lease) -> Direction:
    """As this interface sees it: what reaches a target is what the far end of its cable sends, where it has one."""
    wish = _shape(lease)
    return Direction.OUT if lease.grant.site.nics[wish.interface].peer else wish.direction


def foreign(kernel: Netlink, index: int, root: int = ROOT) -> str:
    """The kind of a queue of someone else's at the root of an interface; empty when there is none."""
    for handle, (parent, kind, _options) in queues(kernel, index).items():
        if parent == AT_ROOT and handle not in (0, root):
            return kind
    return ""


def shape(kernel: Netlink, index: int, wish: Wish, name: str, root: int = ROOT, below: int = BELOW) -> Wish:
    """Make the queue at the root of an interface do what is wished; what it does, read back. NotInForce otherwise."""
    found = _ours(kernel, index, root, below)
    if found != wish.told():
        if root in queues(kernel, index):
            kernel.ask(DELQDISC, QUEUE.pack(0, index, root, AT_ROOT, 0))
        _put(kernel, index, wish, root, below)
        found = _ours(kernel, index, root, below)
    if found != wish.told():
        raise NotInForce(f"{name} has {_text(found)} although {_text(wish)} was asked for")
    return found


def _text(found: Wish) -> str:
    return str(found) if found != Wish() else "no queue of ours"


def _put(kernel: Netlink, index: int, wish: Wish, root: int, below: int) -> None:
    parent = AT_ROOT
    if wish.netem:
        try:
            _add(kernel, index, root, parent, "netem", netem_options(wish))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            raise NotInForce("this kernel has no netem: as root, modprobe sch_netem") from error
        parent = root | 1
    if wish.rate:
        _add(kernel, index, below if wish.netem else root, parent, "tbf", tbf_options(wish.rate))


def _add(kernel: Netlink, index: int, handle: int, parent: int, kind: str, options: bytes) -> None:
    body = QUEUE.pack(0, index, handle, parent, 0) + attribute(KIND, kind.encode() + b"\0")
    kernel.ask(NEWQDISC, body + attribute(OPTIONS, options), CREATE | EXCLUSIVE)


def _ours(kernel: Netlink, index: int, root: int, below: int) -> Wish:
    """What our queues do, as the kernel tells it."""
    found = Wish()
    for handle, (_parent, kind, options) in sorted(queues(kernel, index).items()):
        if handle in (root, below):
            found = read(kind, options, found)
    return found
