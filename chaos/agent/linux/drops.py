"""Dropped packets: a table of our own in the target's namespace, whose rules end by themselves.

Each lease has a set of two timed elements, "IPv4" and "IPv6", and its rules match only packets whose family is in it.
The kernel removes the elements after the lease's time, whether or not any process of ours is alive; renewal puts them
in afresh. Table, sets, counters and rules are one transaction of the `nft` program; no one else's table is touched.
What is there then is read back from the kernel, not from `nft`.
Loss is `numgen`, so it needs no netem. A program whose packet is dropped on its way out may see EPERM from send().
"""

from __future__ import annotations

import errno
import ipaddress
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from chaos.agent.linux.namespaces import inside
from chaos.agent.linux.netlink import DUMP, NETFILTER, Netlink, attribute, attributes, each
from chaos.agent.linux.resource import Lease, NotInForce, Resource, State
from chaos.agent.wire import Grant
from chaos.model.injections import Direction, Drop
from chaos.model.site import Namespace

NAME = "torchchaos"
TABLE = f"inet {NAME}"
NFT_S = 5.0
_PREFIX = "lease."
_CHAINS = {Direction.IN: ("arriving", "prerouting"), Direction.OUT: ("leaving", "postrouting")}


class Table(Resource):
    """The drops of one namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self.key = f"drops {namespace.inode}"

    def before(self) -> State:
        if not shutil.which("nft"):
            raise NotInForce("the nft program is missing: install nftables")
        return {}

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        live = {lease.grant.lease for lease in leases}
        with inside(self._namespace):
            was = _read()
            if live or was is not None:
                _nft("\n".join(_transaction(leases, set(was or ()))))
            found = _read()
        where = f"network namespace {self._namespace.inode}"
        ended = [drops for name, drops in (was or {}).items() if name not in live]
        counted = f"; {sum(drops.packets for drops in ended)} packets were dropped by what ended" if ended else ""
        if found is None:
            if not live:
                return f"no table {TABLE} in {where}{counted}"
            raise NotInForce(f"no table {TABLE} is in {where} although it was made")
        running = {lease.grant.lease for lease in leases if lease.left_s}
        if found.keys() != live or not all(d.rules and (d.left_s or name not in running) for name, d in found.items()):
            raise NotInForce(f"the table {TABLE} in {where} holds {found}")
        return f"{where}: {'; '.join(f'{name}: {drops}' for name, drops in sorted(found.items()))}{counted}"


def _transaction(leases: Sequence[Lease], there: set[str]) -> Iterator[str]:
    """From the leases that are `there` to what `leases` ask for. Nothing is deleted without need: that takes 10 ms."""
    yield f"add table {TABLE}"
    if not leases:
        yield f"delete table {TABLE}"
        return
    fresh = [lease for lease in leases if lease.grant.lease not in there]
    ended = there - {lease.grant.lease for lease in leases}
    rewrite = ended or not fresh
    for chain, hook in _CHAINS.values():
        yield f"add chain {TABLE} {chain} {{ type filter hook {hook} priority -300; }}"
        if rewrite:
            yield f"flush chain {TABLE} {chain}"
    for name in ended:
        yield f"delete set {TABLE} {_PREFIX}{name}"
        yield f"delete counter {TABLE} {_PREFIX}{name}"
    for lease in leases if rewrite else fresh:
        yield from _timer(lease, renewed=lease not in fresh)
        yield from _rules(lease.grant)


def _timer(lease: Lease, renewed: bool) -> Iterator[str]:
    name, timeout = _name(lease.grant), f"timeout {max(1, round(lease.left_s * 1000))}ms"
    yield f"add set {TABLE} {name} {{ typeof meta nfproto; flags timeout; }}"
    yield f"add counter {TABLE} {name}"
    if renewed:  # Adding an element that is there leaves its time as it is; deleting one that is not is an error.
        yield f"add element {TABLE} {name} {{ ipv4, ipv6 }}"
        yield f"delete element {TABLE} {name} {{ ipv4, ipv6 }}"
    yield f"add element {TABLE} {name} {{ ipv4 {timeout}, ipv6 {timeout} }}"


def _name(grant: Grant) -> str:
    """Of a lease's set and counter; the prefix keeps it from being a word of the nft language."""
    return _PREFIX + grant.lease


def _rules(grant: Grant) -> Iterator[str]:
    drop = grant.injection
    assert isinstance(drop, Drop)
    name = _name(grant)
    loss = f"numgen random mod 10000 < {round(drop.percent * 100)} " if drop.percent < 100 else ""
    for direction, (chain, _hook) in _CHAINS.items():
        if drop.direction not in (direction, Direction.BOTH):
            continue
        device, end = ("iifname", "saddr") if direction is Direction.IN else ("oifname", "daddr")
        for peers in _peers(grant, end):
            for protocol in _protocols(drop):
                match = f'{device} != "lo" meta nfproto @{name} {peers}{protocol}{loss}'
                yield f"add rule {TABLE} {chain} {match}counter name {name} drop"


def _peers(grant: Grant, end: str) -> list[str]:
    """Matches that together are the peers' packets, one per address family."""
    assert isinstance(grant.injection, Drop)
    if not grant.injection.peers:
        return [""]
    matches = []
    blocks = [ipaddress.ip_network(text) for name in grant.injection.peers for text in grant.peers[name]]
    for version, family in ((4, "ip"), (6, "ip6")):
        same = sorted({str(block) for block in blocks if block.version == version})
        if same:
            matches.append(f"{family} {end} {{ {', '.join(same)} }} ")
    return matches


def _protocols(drop: Drop) -> list[str]:
    protocols = drop.protocol.value if drop.protocol else "tcp, udp"
    match = f"meta l4proto {{ {protocols} }} "
    if not drop.ports:
        return [match if drop.protocol else ""]
    ports = ", ".join(map(str, sorted(set(drop.ports))))
    return [f"{match}th {end} {{ {ports} }} " for end in ("sport", "dport")]


class Drops(NamedTuple):
    """A lease in the kernel: rules that refer to its counter, packets dropped, time until the kernel ends them."""

    rules: int
    packets: int
    left_s: float

    def __str__(self) -> str:
        return f"{self.rules} rules, {self.packets} packets dropped, {self.left_s:.2f} s left"


_INET, _NFTABLES = 1, 10 << 8
_GETTABLE, _GETSETELEM, _GETOBJ = (_NFTABLES | number for number in (1, 13, 19))
_HEADER = struct.pack("=BBH", _INET, 0, 0)
_TABLE_NAME, _SET_NAME, _ELEMENTS, _EXPIRES = 1, 2, 3, 5
_OBJECT_NAME, _OBJECT_DATA, _OBJECT_USES, _COUNTER_PACKETS = 2, 4, 5, 2


def _read() -> dict[str, Drops] | None:
    """Leases in our table here; None without a table."""
    table = _HEADER + attribute(_TABLE_NAME, NAME.encode() + b"\0")
    with Netlink(NETFILTER) as kernel:
        try:
            kernel.ask(_GETTABLE, table)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        leases = {}
        for counter in kernel.ask(_GETOBJ, table, DUMP):
            found = attributes(counter.body, len(_HEADER))
            name = found[_OBJECT_NAME].rstrip(b"\0").decode()
            packets = _number(attributes(found[_OBJECT_DATA], 0)[_COUNTER_PACKETS])
            elements = table + attribute(_SET_NAME, found[_OBJECT_NAME])
            left_ms = [_left_ms(message.body) for message in kernel.ask(_GETSETELEM, elements, DUMP)]
            leases[name.removeprefix(_PREFIX)] = Drops(
                _number(found[_OBJECT_USES]), packets, max(left_ms, default=0) / 1000
            )
        return leases


def _left_ms(elements: bytes) -> int:
    """Time until the kernel takes the last element away; 0 without elements."""
    listed = attributes(elements, len(_HEADER)).get(_ELEMENTS, b"")
    return max((_number(attributes(element, 0)[_EXPIRES]) for _kind, element in each(listed, 0)), default=0)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _nft(text: str) -> None:
    """Run one transaction."""
    try:
        done = subprocess.run(("nft", "-f", "-"), input=text, capture_output=True, text=True, timeout=NFT_S)
    except subprocess.TimeoutExpired as error:
        raise NotInForce(f"nft did not end within {NFT_S} s") from error
    if done.returncode != 0:
        raise NotInForce(f"nft: {done.stderr.strip().partition(chr(10))[0] or done.returncode}")
