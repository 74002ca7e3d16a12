"""Each injection is in force when the agent says so, and everything is as it was when the agent says that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from chaos.agent.client import Refused
from chaos.agent.linux.freeze import started
from chaos.agent.wire import State
from chaos.model.injections import CpuLimit, Direction, Drop, Freeze, Interface, LinkDown, MemoryLimit, Protocol, Shape
from chaos.model.site import MainProcess, Site
from tests.agent.cases import (
    MIB,
    TARGET,
    Case,
    difference,
    give_back_seen,
    look,
    no_nft,
    parameters,
    usable,
    without_peers,
)
from tests.agent.grounds import Grounds
from tests.agent.pods import WAIT_S, Agent, Pod, run_in, wait_for

needs_nft = pytest.mark.skipif(bool(no_nft()), reason="needs the nft program")


@pytest.mark.kernel
@pytest.mark.parametrize("case", parameters())
def test_in_force_then_reverted(agent: Agent, grounds: Grounds, case: Case) -> None:
    pod = grounds[usable(case).ground]
    before = look(pod)
    evidence = agent.grant(case.at(pod.site), case.injection)
    assert any(letter.isdigit() for letter in evidence), "evidence has numbers"
    assert agent.renew().ok
    assert difference(before, look(pod))
    reply = agent.release()
    assert reply.ok and reply.state is State.RELEASED and reply.evidence
    give_back_seen(pod, before)
    assert not agent.entries()


def test_a_cut_link_takes_its_traffic(agent: Agent, pod: Pod) -> None:
    assert pod.hears() and pod.is_heard()
    agent.grant(pod, LinkDown(TARGET, Interface.CONTROL))
    assert not pod.hears() and not pod.is_heard()
    agent.release()
    assert pod.hears() and pod.is_heard()


def test_a_cut_link_without_a_peer_keeps_routes_and_ipv6(agent: Agent, pod: Pod) -> None:
    agent.grant(without_peers(pod.site), LinkDown(TARGET, Interface.CONTROL))
    assert "default" not in run_in(pod.main.pid, "ip", "route", "show")
    evidence = agent.release().evidence
    assert "5 addresses, routes and neighbours given back" in evidence
    assert "default via 10.70.0.1" in run_in(pod.main.pid, "ip", "route", "show")
    assert "10.99.0.0/16 via 10.70.0.1 dev eth0 metric 7 mtu 1400" in run_in(pod.main.pid, "ip", "route", "show")
    assert "default via fd70::1" in run_in(pod.main.pid, "ip", "-6", "route", "show")
    assert "fd70::2/64" in run_in(pod.main.pid, "ip", "-6", "addr", "show", "dev", "eth0")


@pytest.mark.kernel
@pytest.mark.parametrize("first", ["far", "near"])
def test_a_link_that_had_no_carrier_when_it_went_down_gets_its_routes_back(agent: Agent, pod: Pod, first: str) -> None:
    shared = "10.98.0.0/16 nexthop via 10.70.0.1 nexthop via 10.71.0.1"
    run_in(pod.main.pid, "ip", "route", "add", *shared.split())
    try:
        before = look(pod)
        agent.grant(pod, LinkDown(TARGET, Interface.CONTROL), "far")
        agent.grant(without_peers(pod.site), LinkDown(TARGET, Interface.CONTROL), "near")
        for lease in (first, "near" if first == "far" else "far"):
            assert agent.release(lease).state is State.RELEASED
        give_back_seen(pod, before)
    finally:
        run_in(pod.main.pid, "ip", "route", "del", "10.98.0.0/16")


def test_the_other_link_stays_up(agent: Agent, pod: Pod) -> None:
    agent.grant(pod, LinkDown(TARGET, Interface.DATA))
    assert pod.hears() and pod.is_heard()


@needs_nft
@pytest.mark.parametrize(
    ("drop", "hears", "is_heard"),
    [
        (Drop(TARGET), False, False),
        (Drop(TARGET, direction=Direction.IN), False, True),
        (Drop(TARGET, direction=Direction.OUT), True, False),
        (Drop(TARGET, peers=("node",)), False, False),
        (Drop(TARGET, peers=("other",)), True, True),
        (Drop(TARGET, protocol=Protocol.TCP), True, True),
        (Drop(TARGET, protocol=Protocol.UDP, direction=Direction.IN), False, True),
    ],
)
def test_drops_hit_what_they_name(agent: Agent, pod: Pod, drop: Drop, hears: bool, is_heard: bool) -> None:
    agent.grant(pod, drop, node=("10.70.0.1", "fd70::1"), other=("10.70.0.7",))
    assert (bool(pod.hears()), bool(pod.is_heard())) == (hears, is_heard)


@needs_nft
def test_a_drop_takes_on_new_addresses_of_its_peers(agent: Agent, pod: Pod) -> None:
    agent.grant(pod, Drop(TARGET, peers=("node",)), node=("10.70.0.7",))
    assert pod.hears()
    assert agent.renew(node=("10.70.0.1",)).ok
    assert not pod.hears()
    assert agent.renew().ok
    assert not pod.hears()


@needs_nft
def test_drops_hit_the_ports_they_name(agent: Agent, pod: Pod) -> None:
    agent.grant(pod, Drop(TARGET, ports=(4242,)))
    assert not pod.hears(port=4242)
    assert pod.hears(port=4243)


@needs_nft
def test_loss_is_partial(agent: Agent, pod: Pod) -> None:
    agent.grant(pod, Drop(TARGET, percent=50, direction=Direction.IN))
    assert 0 < pod.hears(count=100) < 100
    assert "100 packets" not in agent.renew().evidence


def test_the_lowest_rate_counts(agent: Agent, pod: Pod) -> None:
    agent.grant(pod, Shape(TARGET, Interface.DATA, rate_bit_s=8_000_000), "slow")
    evidence = agent.grant(pod, Shape(TARGET, Interface.DATA, rate_bit_s=80_000_000), "fast")
    assert "8000000 bit/s" in evidence
    agent.release("slow")
    assert "80000000 bit/s" in agent.renew("fast").evidence


@contextmanager
def program(pod: Pod, text: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program in the pod's groups, from when it has printed its first line."""
    child = subprocess.Popen([sys.executable, "-c", f"input()\n{text}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin and child.stdout
    pod.adopt(child.pid)
    child.stdin.write(b"\n")
    child.stdin.flush()
    child.stdout.readline()
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.mark.kernel
def test_a_cpu_limit_throttles(agent: Agent, pod: Pod) -> None:
    agent.grant(pod, CpuLimit(TARGET, 0.05))
    with program(pod, "print(flush=True)\nwhile True: pass"):
        wait_for("it is throttled", lambda: "throttled 0 times" not in agent.renew().evidence)


GROWING = f"""
import time
held = [bytearray({MIB}) for _ in range(48)]
print(flush=True)
while True:
    held.append(bytearray({MIB}))
    print(len(held), flush=True)
    time.sleep(0.01)
"""


@pytest.mark.kernel
def test_a_memory_limit_kills(agent: Agent, pod: Pod) -> None:
    with program(pod, GROWING) as child:
        agent.grant(pod, MemoryLimit(TARGET, limit_bytes=32 * MIB, kill=True))
        assert child.wait(WAIT_S) == -signal.SIGKILL


@pytest.mark.kernel
def test_a_memory_limit_without_a_kill_holds_up(agent: Agent, pod: Pod) -> None:
    with program(pod, GROWING) as child:
        agent.grant(pod, MemoryLimit(TARGET, share_of_used=1.0))
        wait_for(
            "the limit is hit", lambda: not agent.renew().evidence.endswith(("hit 0 times so far", "0 hold-ups so far"))
        )
        assert child.poll() is None
        agent.release()
        assert child.stdout is not None
        grown = int(child.stdout.readline())
        wait_for("it grows again", lambda: child.stdout and int(child.stdout.readline()) > grown + 20)


@pytest.mark.kernel
def test_a_memory_limit_that_cannot_be_reached_is_refused(agent: Agent, pod: Pod) -> None:
    before = look(pod)
    with program(pod, f"held = bytearray({32 * MIB})\nprint(flush=True)\nimport time\ntime.sleep(600)"):
        with pytest.raises(Refused, match="cannot take back enough"):
            agent.grant(pod, MemoryLimit(TARGET, limit_bytes=8 * MIB))
        assert not agent.entries() and not agent.status()
    give_back_seen(pod, before)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][1] == "T"


def test_a_process_that_was_stopped_stays_stopped(agent: Agent, pod: Pod) -> None:
    site = by_signals(pod)
    with program(pod, "print(flush=True)\nimport time\ntime.sleep(600)") as child:
        os.kill(child.pid, signal.SIGSTOP)
        wait_for("it is stopped", lambda: is_stopped(child.pid))
        agent.grant(site, Freeze(TARGET))
        assert is_stopped(pod.main.pid)
        agent.release()
        assert is_stopped(child.pid) and not is_stopped(pod.main.pid)


def test_a_node_and_its_pod_frozen_and_released_in_any_order(agent: Agent, pod: Pod) -> None:
    node = msgspec.structs.replace(by_signals(pod), name="node-0", process=None, groups={"twin": f"{pod.groups[0]}/."})
    for first, second in (("node", "pod"), ("pod", "node")):
        for released, left in (("node", "pod"), ("pod", "node")):
            for lease in (first, second):
                agent.grant(
                    node if lease == "node" else by_signals(pod), Freeze("node-0" if lease == "node" else TARGET), lease
                )
            agent.release(released)
            assert is_stopped(pod.main.pid)
            agent.release(left)
            assert not is_stopped(pod.main.pid)


def by_signals(pod: Pod) -> Site:
    """The pod as if it had no version 2 freezer."""
    return msgspec.structs.replace(pod.site, groups={"freezer": pod.groups[0]}, unified=None)


def test_processes_known_by_their_pid_namespace(agent: Agent) -> None:
    """Where there is no cgroup. SIGSTOP from outside stops even process 1 of the namespace."""
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", "sleep 600 & wait"]
    outer = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        (main,) = wait_for("process 1 of its namespace", lambda: below(outer.pid))
        (child,) = wait_for("its child", lambda: below(main))
        ticks = started(main)
        assert ticks is not None
        site = Site(TARGET, 1, MainProcess(main, ticks))
        assert "2 of 2 processes are stopped" in agent.grant(site, Freeze(TARGET))
        assert is_stopped(main) and is_stopped(child) and not is_stopped(outer.pid)
        agent.release()
        assert not is_stopped(main) and not is_stopped(child)
    finally:
        outer.kill()
        outer.wait(WAIT_S)


def below(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
