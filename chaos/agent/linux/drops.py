"""Dropped packets: a table of our own in the target's namespace, whose rules end by themselves.

Each lease has a set of two timed elements, "IPv4" and "IPv6", and its rules match only packets whose family is in it.
The kernel removes the elements after the lease's time, whether or not any process of ours is alive; renewal puts them
in afresh. Table, sets, counters and rules are one transaction of the `nft` program; no one else's table is touched.
Loss is `numgen`, so it needs no netem. A program whose packet is dropped on its way out may see EPERM from send().
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from chaos.agent.linux.namespaces import inside
from chaos.agent.linux.resource import Lease, NotInForce, Resource, State
from chaos.agent.wire import Grant
from chaos.model.injections import Direction, Drop
from chaos.model.site import Namespace

TABLE = "inet torchchaos"
NFT_S = 5.0
_CHAINS = {Direction.IN: ("arriving", "prerouting"), Direction.OUT: ("leaving", "postrouting")}


class Table(Resource):
    """The drops of one namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._settled: set[str] = set()
        self.key = f"drops {namespace.inode}"

    def before(self) -> State:
        return {}

    def settle(self, leases: Sequence[Lease], before: State) -> str:
        with inside(self._namespace):
            live = {lease.grant.lease for lease in leases}
            ended = self._settled - live
            dropped = sum(_counts(_read(), ended).values()) if ended else 0
            _nft("-f", "-", text="\n".join(self._transaction(leases, ended)))
            self._settled = live
            found = _read()
        where = f"network namespace {self._namespace.inode}"
        counted = f"; {dropped} packets were dropped" if ended else ""
        if not live and not found:
            return f"no table {TABLE} in {where}{counted}"
        counts = _counts(found, live)
        if not live or counts.keys() != live:
            raise NotInForce(f"the table {TABLE} in {where} does not hold what it was told to")
        left_s = max(lease.left_s for lease in leases)
        packets = sum(counts.values())
        return f"drop rules of {len(live)} leases in {where}, {packets} packets dropped, {left_s:.2f} s left{counted}"

    def _transaction(self, leases: Sequence[Lease], ended: set[str]) -> Iterator[str]:
        """From what was settled last to what `leases` ask for. Nothing is deleted without need: that takes 10 ms."""
        yield f"add table {TABLE}"
        if not leases:
            yield f"delete table {TABLE}"
            return
        fresh = [lease for lease in leases if lease.grant.lease not in self._settled]
        rewrite = ended or not fresh
        for chain, hook in _CHAINS.values():
            yield f"add chain {TABLE} {chain} {{ type filter hook {hook} priority -300; }}"
            if rewrite:
                yield f"flush chain {TABLE} {chain}"
        for name in ended:
            yield f"delete set {TABLE} lease.{name}"
            yield f"delete counter {TABLE} lease.{name}"
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
    return f"lease.{grant.lease}"


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


def _read() -> list[dict[str, Any]]:
    """Everything in our table; empty when there is none."""
    return list(json.loads(_nft("-j", "list", "table", *TABLE.split(), absent="{}")).get("nftables", ()))


def _counts(found: list[dict[str, Any]], leases: set[str]) -> dict[str, int]:
    """Packets dropped so far by those of `leases` whose elements and rules are there."""
    timed = {item["set"]["name"] for item in found if item.get("set", {}).get("elem")}
    ruled = {part["counter"] for item in found if "rule" in item for part in item["rule"]["expr"] if "counter" in part}
    counters = {item["counter"]["name"]: int(item["counter"]["packets"]) for item in found if "counter" in item}
    names = {lease: f"lease.{lease}" for lease in leases}
    return {lease: counters[name] for lease, name in names.items() if name in timed & ruled & counters.keys()}


def _nft(*arguments: str, text: str = "", absent: str | None = None) -> str:
    """Run `nft` once. `absent` is the answer where what it should show does not exist."""
    try:
        done = subprocess.run(("nft", *arguments), input=text, capture_output=True, text=True, timeout=NFT_S)
    except FileNotFoundError as error:
        raise NotInForce("the nft program is missing: install nftables") from error
    except subprocess.TimeoutExpired as error:
        raise NotInForce(f"nft did not end within {NFT_S} s") from error
    if done.returncode == 0:
        return done.stdout
    if absent is not None and "No such file or directory" in done.stderr:
        return absent
    raise NotInForce(f"nft: {done.stderr.strip().splitlines()[0] if done.stderr.strip() else done.returncode}")
