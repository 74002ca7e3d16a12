"""A pod with two RDMA ports over soft RoCE, joined by a cable, and traffic between them by Debian's perftest.

Soft RoCE sends and receives in the machine's first network namespace only. Both ends of the cable lie there; rules make
packets from one to the other leave by the link, though both addresses are the machine's own.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from chaos.agent.linux.freeze import started
from chaos.agent.linux.namespaces import inside
from chaos.model.injections import Interface
from chaos.model.site import Link, MainProcess, Namespace, Nic, Site
from tests.agent.pods import FIRST, SLOW, WAIT_S, Pod, run_in, wait_for

ENDS = {"ra": "10.80.0.1", "rb": "10.80.0.2"}
_LAY = """
set -e
ulimit -l unlimited
cd /proc/sys/net/ipv4/conf
for links in all default; do echo 1 > $links/accept_local; echo 0 > $links/rp_filter; done
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
ip link set lo up
ip link add ra type veth peer name rb
ip addr add 10.80.0.1/24 dev ra; ip addr add 10.80.0.2/24 dev rb
ip link set ra up; ip link set rb up
ip rule add pref 1 iif ra lookup local; ip rule add pref 2 iif rb lookup local
ip rule add pref 10 oif ra lookup 100; ip rule add pref 11 oif rb lookup 101
ip rule add pref 100 lookup local; ip rule del pref 0
ip route add 10.80.0.0/24 dev ra table 100; ip route add 10.80.0.0/24 dev rb table 101
rdma link add rxe_a type rxe netdev ra
rdma link add rxe_b type rxe netdev rb
"""
_PORT = 18515
_PART_BYTES = 10_000


@contextmanager
def make_rails() -> Iterator[Pod]:
    """Rail 0 is rxe_a by ra, rail 1 rxe_b by rb; both in the pod's namespace."""
    enter = ["nsenter", f"--net={FIRST}", "sleep", "infinity"]
    main = subprocess.Popen(enter, stdin=subprocess.DEVNULL)
    try:
        inode = os.stat(FIRST).st_ino
        wait_for("the first namespace", lambda: os.stat(f"/proc/{main.pid}/ns/net").st_ino == inode)
        run_in(main.pid, "sh", "-c", _LAY)
        ticks = started(main.pid)
        assert ticks is not None
        link = Link(Namespace(f"/proc/{main.pid}/ns/net", inode), "ra")
        site = Site("replica-0", 1, MainProcess(main.pid, ticks), {Interface.DATA: Nic(link)})
        yield Pod(main, main, site, usable=partial(_are_active, main.pid))
    finally:
        main.kill()
        main.wait(WAIT_S)


def _are_active(pid: int) -> bool:
    return run_in(pid, "rdma", "link").count("state ACTIVE") == len(ENDS)


@contextmanager
def serving(pod: Pod, program: str, *options: str) -> Iterator[list[str] | None]:
    """The program's server on rail 1; the command for its client on rail 0, None when the server has no port to use."""
    enter = ["nsenter", f"--net=/proc/{pod.main.pid}/ns/net"]
    common = ["-x", "1", *options]
    server = subprocess.Popen(
        [*enter, program, "-d", "rxe_b", *common], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    try:
        listens = partial(run_in, pod.main.pid, "ss", "-lnt")
        wait_for("a server of RDMA", lambda: server.poll() is not None or f":{_PORT} " in listens())
        yield None if server.poll() is not None else [*enter, program, "-d", "rxe_a", *common, "127.0.0.1"]
    finally:
        server.kill()
        server.communicate()


def measured(pod: Pod, program: str, *options: str, within_s: float = 2 * SLOW) -> list[float] | None:
    """The numbers that an exchange from rail 0 to rail 1 ends with; None when it does not."""
    with serving(pod, program, *options) as command:
        if command is None:
            return None
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=within_s)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode != 0:
            return None
        (line,) = re.findall(r"(?m)^ (\d+ +\d+ .*)$", done.stdout)
        return list(map(float, line.split()))


def send_by_tcp(pod: Pod, count: int) -> None:
    """From one end of the cable to the other: a socket that is bound to a link has its packets routed by it."""
    with inside(pod.network):
        listener, sender = socket.socket(), socket.socket()
    with listener, sender:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"rb")
        listener.bind((ENDS["rb"], 0))
        listener.listen()
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"ra")
        sender.settimeout(WAIT_S)
        sender.connect(listener.getsockname())
        taker, _address = listener.accept()
        with taker:
            for _part in range(count // _PART_BYTES):
                sender.sendall(bytes(_PART_BYTES))
                taken = 0
                while taken < _PART_BYTES:
                    taken += len(taker.recv(_PART_BYTES))
