"""A detour for packets: a filter that leads them from an interface to one made for it, and back after its queue.

    interface --filter at PLACE--> ifb with a queue of ours --> on as before, by the queue that was there

The hook for filters (clsact) may be someone's already, with filters of theirs, such as a network plugin's: ours stands
beside them, and the hook goes only if we made it and nobody else uses it.
"""

from __future__ import annotations

import errno
import struct

from chaos.agent.linux.netlink import CREATE, EXCLUSIVE, Netlink, attribute, attributes, interface, set_up
from chaos.agent.linux.queues import (
    DELFILTER,
    DELQDISC,
    KIND,
    NEWFILTER,
    NEWQDISC,
    OPTIONS,
    QUEUE,
    filters,
    queues,
)
from chaos.agent.linux.resource import NotInForce
from chaos.model.injections import Direction

PLACE = 0xC405
"""Priority of our filters."""
_HOOK, _HOOK_PARENT, _CLSACT = 0xFFFF0000, 0xFFFFFFF1, "clsact"
_SIDES = {Direction.IN: 0xFFFFFFF2, Direction.OUT: 0xFFFFFFF3}
_ALL_PROTOCOLS = 0x0300  # ETH_P_ALL in network byte order.
_SELECTOR, _ACTIONS = 5, 7
_EVERY_PACKET = struct.pack("=BBBxHHhhIIIii", 1, 0, 1, *[0] * 9)
"""u32: one key that matches whatever is there, and then no other filter is asked."""
_ACT_KIND, _ACT_OPTIONS, _MIRRED_PARMS = 1, 2, 2
_MIRRED = struct.Struct("=IIiiiiI")
_STOLEN, _REDIRECT = 4, 1

_LINK = struct.Struct("=BxHiII")
_NEWLINK, _DELLINK = 16, 17
_IFNAME, _LINKINFO, _INFO_KIND = 3, 18, 1
_NO_MODULE = (errno.EOPNOTSUPP, errno.ENOENT)


def hook(kernel: Netlink, index: int) -> str:
    """The kind of the hook for filters, empty where there is none."""
    return queues(kernel, index).get(_HOOK, (0, "", b""))[1]


def open_(kernel: Netlink, index: int, direction: Direction) -> int:
    """The interface of the detour, made where it is not there yet; nothing is led to it so far.

    NotInForce when the hook is an older one of someone else's, which has no place for us.
    """
    if hook(kernel, index) not in ("", _CLSACT):
        raise NotInForce(f"interface {index} has a queue of someone else's for filters: {hook(kernel, index)}")
    name = _name(index, direction)
    found = interface(kernel, name)
    if found is None:
        kind = attribute(_LINKINFO, attribute(_INFO_KIND, b"ifb"))
        body = _LINK.pack(0, 0, 0, 0, 0) + attribute(_IFNAME, name.encode() + b"\0") + kind
        _make(kernel, _NEWLINK, body, "ifb", "ifb")
        found = interface(kernel, name)
        assert found is not None, "it was made just now"
    set_up(kernel, found.number, True)
    if not hook(kernel, index):
        body = QUEUE.pack(0, index, _HOOK, _HOOK_PARENT, 0) + attribute(KIND, _CLSACT.encode() + b"\0")
        _make(kernel, NEWQDISC, body, _CLSACT, "sch_ingress")
    return found.number


def lead(kernel: Netlink, index: int, aside: int, direction: Direction) -> None:
    """Lead packets there; NotInForce unless the kernel says that it does."""
    if _leads_to(kernel, index, direction) != aside:
        mirred = attribute(_MIRRED_PARMS, _MIRRED.pack(0, 0, _STOLEN, 0, 0, _REDIRECT, aside))
        action = attribute(1, attribute(_ACT_KIND, b"mirred\0") + attribute(_ACT_OPTIONS, mirred))
        options = attribute(OPTIONS, attribute(_SELECTOR, _EVERY_PACKET) + attribute(_ACTIONS, action))
        body = _filter(index, direction) + attribute(KIND, b"u32\0") + options
        _make(kernel, NEWFILTER, body, "u32 or mirred", "-a cls_u32 act_mirred")
    if _leads_to(kernel, index, direction) != aside:
        raise NotInForce(f"packets of interface {index} are not led to {_name(index, direction)}")


def close(kernel: Netlink, index: int, direction: Direction) -> None:
    """Take filter and interface away; NotInForce when one is still there."""
    if _leads_to(kernel, index, direction) is not None:
        kernel.ask(DELFILTER, _filter(index, direction) + attribute(KIND, b"u32\0"))
    aside = interface(kernel, _name(index, direction))
    if aside is not None:
        kernel.ask(_DELLINK, _LINK.pack(0, 0, aside.number, 0, 0))
    if _leads_to(kernel, index, direction) is not None or interface(kernel, _name(index, direction)):
        raise NotInForce(f"the detour {_name(index, direction)} is still there")


def give_hook_back(kernel: Netlink, index: int, before: str) -> None:
    """Take the hook away if there was none before and no filter uses it."""
    if not before and hook(kernel, index) == _CLSACT and not _used(kernel, index):
        kernel.ask(DELQDISC, QUEUE.pack(0, index, _HOOK, _HOOK_PARENT, 0))


def _make(kernel: Netlink, kind: int, body: bytes, what: str, module: str) -> None:
    try:
        kernel.ask(kind, body, CREATE | EXCLUSIVE)
    except OSError as error:
        if error.errno not in _NO_MODULE:
            raise
        raise NotInForce(f"this kernel has no {what}, which a detour needs: as root, modprobe {module}") from error


def _filter(index: int, direction: Direction) -> bytes:
    return QUEUE.pack(0, index, 0, _SIDES[direction], PLACE << 16 | _ALL_PROTOCOLS)


def _leads_to(kernel: Netlink, index: int, direction: Direction) -> int | None:
    """The interface that our filter leads to."""
    if hook(kernel, index) != _CLSACT:
        return None
    for message in filters(kernel, index, _SIDES[direction]):
        _family, _index, _handle, _parent, info = QUEUE.unpack_from(message.body)
        options = attributes(attributes(message.body, QUEUE.size).get(OPTIONS, b""), 0)
        if info >> 16 == PLACE and _ACTIONS in options:
            action = attributes(attributes(options[_ACTIONS], 0)[1], 0)
            return int(_MIRRED.unpack_from(attributes(action[_ACT_OPTIONS], 0)[_MIRRED_PARMS])[-1])
    return None


def _used(kernel: Netlink, index: int) -> bool:
    return any(filters(kernel, index, side) for side in _SIDES.values())


def _name(index: int, direction: Direction) -> str:
    return f"chaos-{direction.value}{index}"
