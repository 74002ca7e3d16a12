"""What is asked of a queue is what packets meet, either way; a queue that is someone's stays as it is."""

from __future__ import annotations

import re
import socket
import statistics
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from chaos.agent.client import Refused
from chaos.agent.linux.namespaces import inside
from chaos.model.injections import Direction, Interface, Shape, Spread
from chaos.model.site import Namespace
from tests.agent.cases import TARGET, difference, look, no_netem, shape, without_peers
from tests.agent.pods import SLOW, Agent, Pod, run_in

pytestmark = pytest.mark.kernel
_PACKET = struct.Struct("=Id")
_NODE, _POD = "10.71.0.1", "10.71.0.2"
_DELAY_MS = 300 if SLOW == 1 else 1500
"""Much longer than what the machine itself needs for a packet."""
_REST_S = 3 * _DELAY_MS / 1000
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 33, 35
_INBOX_BYTES = 4 << 20
_TIMESPEC = struct.Struct("=qq")


@pytest.fixture
def netem() -> None:
    if no_netem():
        pytest.skip(f"needs {no_netem()}")


@pytest.fixture(autouse=True)
def known_to_each_other(pod: Pod) -> None:
    """Who has to ask for the other's address first has the question delayed as well, and many packets dropped."""
    assert out(pod, 1) and to(pod, 1)


@dataclass(frozen=True)
class Arrival:
    number: int
    after_ms: float


def flow(source: Namespace, destination: Namespace, address: str, count: int) -> list[Arrival]:
    """Send numbered datagrams; those that arrive by the kernel's clock, until all have or none comes for a while."""
    with inside(destination):
        inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inside(source):
        outbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    arrived: list[Arrival] = []
    with inbox, outbox:
        inbox.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        inbox.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _INBOX_BYTES)
        inbox.bind((address, 0))
        inbox.setblocking(False)
        for number in range(count):
            outbox.sendto(_PACKET.pack(number, time.time()), inbox.getsockname())
            if number % 32 == 0:
                _take(inbox, arrived)
        last = time.monotonic()
        while len({packet.number for packet in arrived}) < count and time.monotonic() - last < _REST_S:
            if _take(inbox, arrived):
                last = time.monotonic()
    return arrived


def _take(inbox: socket.socket, arrived: list[Arrival]) -> bool:
    before = len(arrived)
    while True:
        try:
            data, more, _flags, _address = inbox.recvmsg(_PACKET.size, 64)
        except BlockingIOError:
            return len(arrived) > before
        number, sent_s = _PACKET.unpack(data)
        seconds, nanoseconds = _TIMESPEC.unpack(more[0][2])
        arrived.append(Arrival(number, (seconds + nanoseconds / 1e9 - sent_s) * 1e3))


def out(pod: Pod, count: int) -> list[Arrival]:
    return flow(pod.network, pod.at_node, _NODE, count)


def to(pod: Pod, count: int) -> list[Arrival]:
    return flow(pod.at_node, pod.network, _POD, count)


def middle_ms(arrived: list[Arrival]) -> float:
    return statistics.median([packet.after_ms for packet in arrived])


def likely(seen: int, of: int, share: float) -> bool:
    """Whether that many of `of` is within 4.5 deviations, which chance misses once in 100 000 times."""
    return abs(seen - of * share) <= 4.5 * (of * share * (1 - share)) ** 0.5


@pytest.mark.parametrize(
    ("spread", "deviation"), [(Spread.UNIFORM, 1 / 3**0.5), (Spread.NORMAL, 1.0)], ids=["uniform", "normal"]
)
def test_delay_and_jitter(agent: Agent, pod: Pod, netem: None, spread: Spread, deviation: float) -> None:
    jitter_ms = _DELAY_MS / 4
    agent.grant(pod, shape(delay_ms=_DELAY_MS, jitter_ms=jitter_ms, spread=spread))
    after = [packet.after_ms for packet in out(pod, 400)]
    assert len(after) == 400
    assert statistics.mean(after) == pytest.approx(_DELAY_MS, rel=0.2)
    assert statistics.stdev(after) == pytest.approx(deviation * jitter_ms, rel=0.2)
    assert middle_ms(to(pod, 20)) < _DELAY_MS / 3, "the other way is as it was"


@pytest.mark.parametrize("at", [lambda site: site, without_peers], ids=["by the far end", "by a detour"])
def test_what_reaches_the_target_is_delayed(agent: Agent, pod: Pod, netem: None, at: Callable) -> None:
    agent.grant(at(pod.site), shape(delay_ms=_DELAY_MS, direction=Direction.IN))
    assert middle_ms(to(pod, 20)) == pytest.approx(_DELAY_MS, rel=0.2)
    assert middle_ms(out(pod, 20)) < _DELAY_MS / 3, "the other way is as it was"


def test_losses_one_by_one_and_in_bursts(agent: Agent, pod: Pod, netem: None) -> None:
    count = 2000
    agent.grant(pod, shape(loss_percent=10))
    single = lost_runs(out(pod, count), count)
    assert likely(sum(single), count, 0.1)
    agent.release()
    agent.grant(pod, shape(loss_percent=10, loss_burst=20))
    bursts = lost_runs(out(pod, count), count)
    assert statistics.mean(bursts) > 4 * statistics.mean(single)
    assert 0.02 < sum(bursts) / count < 0.3


def lost_runs(arrived: list[Arrival], count: int) -> list[int]:
    """Lengths of the gaps in the numbers."""
    numbers = sorted({packet.number for packet in arrived})
    return [gap for before, after in zip([-1, *numbers], [*numbers, count], strict=True) if (gap := after - before - 1)]


def test_doubled_damaged_and_sent_ahead(agent: Agent, pod: Pod, netem: None) -> None:
    agent.grant(pod, shape(duplicate_percent=20))
    assert likely(len(out(pod, 500)) - 500, 500, 0.2)
    agent.release()
    agent.grant(pod, shape(corrupt_percent=20))
    assert 50 < 500 - len(out(pod, 500)) < 150, "checksums drop what is damaged"
    agent.release()
    agent.grant(pod, shape(delay_ms=_DELAY_MS, reorder_percent=20))
    assert likely(sum(packet.after_ms < _DELAY_MS / 2 for packet in out(pod, 500)), 500, 0.2)


_THEIRS = (
    "qdisc add dev net1 root handle 7: htb default 1",
    "class add dev net1 parent 7: classid 7:1 htb rate 800mbit ceil 900mbit",
    "qdisc add dev net1 parent 7:1 handle 71: tbf rate 700mbit burst 128k latency 20ms",
    "filter add dev net1 parent 7: pref 3 u32 match ip dport 9 0xffff classid 7:1",
)


def theirs(pod: Pod) -> str:
    """Byte for byte as tc tells it."""
    return run_in(pod.main.pid, "sh", "-c", "for what in qdisc class filter; do tc -d $what show dev net1; done")


@pytest.mark.parametrize("direction", [Direction.OUT, Direction.IN])
def test_a_queue_of_the_users_stays_and_is_at_work(agent: Agent, pod: Pod, direction: Direction) -> None:
    run_in(pod.main.pid, "tc", "-batch", "-", text="\n".join(_THEIRS))
    try:
        before, was = theirs(pod), look(pod)
        evidence = agent.grant(without_peers(pod.site), shape(rate_bit_s=80_000, direction=direction))
        assert "a rate of 80000 bit/s" in evidence
        assert set(before.splitlines()) <= set(theirs(pod).splitlines())
        assert len({packet.number for packet in out(pod, 20)}) == len({packet.number for packet in to(pod, 20)}) == 20
        passed = f"chaos-{direction.value}"
        assert re.search(rf"{passed}\d+\b.*\n *Sent [1-9]\d* bytes", run_in(pod.main.pid, "tc", "-s", "qdisc", "show"))
        agent.crash()
        assert theirs(pod) == before and not difference(was, look(pod))
    finally:
        run_in(pod.main.pid, "tc", "qdisc", "del", "dev", "net1", "root")


@pytest.mark.parametrize("first", ["in", "out"])
def test_detours_of_both_ways_end_in_any_order(agent: Agent, pod: Pod, first: str) -> None:
    run_in(pod.main.pid, "tc", "-batch", "-", text="\n".join(_THEIRS))
    try:
        was = look(pod)
        for direction in (Direction.OUT, Direction.IN):
            wish = shape(rate_bit_s=10_000_000, direction=direction)
            agent.grant(without_peers(pod.site), wish, direction.value)
        agent.release(first)
        assert difference(was, look(pod))
        agent.release("in" if first == "out" else "out")
        assert not difference(was, look(pod))
    finally:
        run_in(pod.main.pid, "tc", "qdisc", "del", "dev", "net1", "root")


def test_a_hook_of_the_users_stays_with_its_filters(agent: Agent, pod: Pod) -> None:
    run_in(pod.main.pid, "tc", "qdisc", "add", "dev", "net1", "clsact")
    run_in(pod.main.pid, "tc", "-batch", "-", text="filter add dev net1 ingress pref 9 u32 match u32 0 0 classid 1:1")
    try:
        was = look(pod)
        agent.grant(without_peers(pod.site), shape(rate_bit_s=10_000_000, direction=Direction.IN))
        assert difference(was, look(pod))
        agent.release()
        assert not difference(was, look(pod))
    finally:
        run_in(pod.main.pid, "tc", "qdisc", "del", "dev", "net1", "clsact")


@pytest.mark.skipif(SLOW > 1, reason="that kernel has netem")
def test_without_the_module_it_is_named(agent: Agent, pod: Pod) -> None:
    if not no_netem():
        pytest.skip("this kernel has netem")
    with pytest.raises(Refused, match="modprobe sch_netem"):
        agent.grant(pod, Shape(TARGET, Interface.DATA, delay_ms=20))
