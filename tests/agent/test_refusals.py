"""What the agent refuses, in one clear line, with nothing changed."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from chaos.agent.client import Refused
from chaos.agent.ledger import Ledger, LedgerHeld
from chaos.agent.linux.freeze import started
from chaos.agent.wire import LINE_BYTES_MAX, Grant
from chaos.model.injections import (
    CpuLimit,
    DiskFill,
    Drop,
    Freeze,
    Interface,
    IoLimit,
    KernelInjection,
    LinkDown,
    Shape,
)
from chaos.model.site import Link, MainProcess, Namespace, Nic, Site
from tests.agent.cases import TARGET, difference, look, no_netem
from tests.agent.pods import Agent, Pod, namespace, started_agent


def ask(agent: Agent, line: bytes) -> dict[str, object]:
    """Send one raw line; the reply."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(agent.socket))
        connection.sendall(line + b"\n")
        with connection.makefile("rb") as replies:
            reply = json.loads(replies.readline())
    assert isinstance(reply, dict)
    return reply


def refusal(agent: Agent, pod: Pod, **changes: object) -> str:
    """The error when these fields of a good grant are changed: `injection_percent` is the injection's `percent`."""
    good = Grant("lease-1", 5.0, Drop(TARGET), pod.site)
    grant = json.loads(msgspec.json.encode(good))
    for key, value in changes.items():
        part, _, field = key.rpartition("__")
        (grant[part] if part else grant)[field] = value
    reply = ask(agent, json.dumps(grant).encode())
    assert not reply["ok"] and "\n" not in str(reply["error"])
    assert not agent.status() and not agent.entries()
    return str(reply["error"])


_LONG = {"type": "shape", "target": TARGET, "interface": "data", "delay_ms": 2000}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"injection__percent": 0}, "Expected `float` >= 0.01 - at `$.injection.percent`"),
        ({"injection__percent": 101}, "Expected `float` <= 100.0 - at `$.injection.percent`"),
        ({"injection__ports": [0]}, "Expected `int` >= 1 - at `$.injection.ports[0]`"),
        ({"injection__percnt": 5}, "Object contains unknown field `percnt` - at `$.injection`"),
        ({"injection__type": "fault_point"}, "Invalid value 'fault_point' - at `$.injection.type`"),
        ({"injection__type": "delete"}, "Invalid value 'delete' - at `$.injection.type`"),
        ({"injection__peers": ["replica-7"]}, "no address is known of replica-7"),
        ({"ttl_s": 0.4}, "Expected `float` >= 0.5 - at `$.ttl_s`"),
        ({"ttl_s": 1.0, "injection": _LONG}, "delay_ms 2000 is longer than the lease of 1 s that holds it"),
        ({"ttl_s": 15.5}, "Expected `float` <= 15.0 - at `$.ttl_s`"),
        ({"lease": "../x"}, "Expected `str` matching regex"),
        ({"do": "explode"}, "Invalid value 'explode' - at `$.do`"),
        ({"injection": {"type": "shape", "target": TARGET, "interface": "data"}}, "shape needs rate_bit_s, delay_ms"),
        ({"injection": {"type": "memory_limit", "target": TARGET}}, "exactly one of limit_bytes and share_of_used"),
    ],
)
def test_bad_input(agent: Agent, pod: Pod, changes: dict[str, object], message: str) -> None:
    assert message in refusal(agent, pod, **changes)


def test_bad_lines(agent: Agent) -> None:
    assert "malformed" in str(ask(agent, b"hello")["error"])
    assert f"longer than {LINE_BYTES_MAX} bytes" in str(ask(agent, b"x" * (LINE_BYTES_MAX + 10))["error"])


def own_process(pid: int) -> MainProcess:
    ticks = started(pid)
    assert ticks is not None
    return MainProcess(pid, ticks)


def at(**changes: object) -> Callable[[Agent, Pod], Site]:
    return lambda _agent, pod: msgspec.structs.replace(pod.site, **changes)


def agent_pid(agent: Agent) -> int:
    assert agent.process is not None
    return agent.process.pid


def own_group(_agent: Agent, pod: Pod) -> Site:
    """The group that holds everyone, as a controller's root does."""
    group = next(iter(pod.site.groups.values()), pod.site.unified)
    assert group is not None
    return msgspec.structs.replace(pod.site, groups={"cpu": os.path.dirname(group)}, unified=None)


def in_namespace(network: Namespace) -> dict[Interface, Nic]:
    return {Interface.CONTROL: Nic(Link(network, "lo"))}


def with_peer_here(_agent: Agent, pod: Pod) -> Site:
    nic = pod.site.nics[Interface.CONTROL]
    peer = Link(namespace(os.getpid()), "eth0")
    return msgspec.structs.replace(pod.site, nics={Interface.CONTROL: msgspec.structs.replace(nic, peer=peer)})


LINK = LinkDown(TARGET, Interface.CONTROL)


@pytest.mark.parametrize(
    ("site", "injection", "message"),
    [
        (at(nics=in_namespace(namespace(os.getpid()))), LINK, "is that of"),
        (with_peer_here, LINK, "is that of"),
        (at(process=own_process(1)), LINK, "is process 1"),
        (at(process=own_process(os.getpid())), LINK, "is the client"),
        (lambda a, p: msgspec.structs.replace(p.site, process=own_process(agent_pid(a))), LINK, "is the agent"),
        (own_group, Freeze(TARGET), "is in the cgroup"),
        (own_group, CpuLimit(TARGET, 0.1), "is in the cgroup"),
        (at(name="replica-9"), LINK, "the site is replica-9's, the injection is for replica-0"),
        (at(process=MainProcess(2**22 - 1, 5)), LINK, "is not alive"),
        (lambda _a, p: msgspec.structs.replace(p.site, process=MainProcess(p.main.pid, 5)), LINK, "is not alive"),
        (at(nics={}), LINK, "replica-0 has no control interface"),
        (at(nics=in_namespace(Namespace("/proc/self/ns/none", 5))), LINK, "network namespace 5 is gone"),
        (at(process=None), Drop(TARGET), "is a node, whose members have namespaces of their own"),
        (at(groups={}, unified=None), CpuLimit(TARGET, 0.1), "no cgroup with the controller cpu"),
        (at(groups={}, unified=None), Freeze(TARGET), "neither a cgroup nor a pid namespace"),
        (at(folder=None), DiskFill(TARGET, 0), "no folder for disk faults"),
        (at(folder="/"), DiskFill(TARGET, 0), "on the machine's own disk"),
        (at(folder="/dev/shm"), DiskFill(TARGET, 0), "is in memory, of which filling it would take more than half"),
        (at(folder="/proc"), IoLimit(TARGET, 1024), "on no disk that could be slowed"),
        (at(groups={"cpu": "/sys/fs/cgroup/none"}), CpuLimit(TARGET, 0.1), "there is no cgroup /sys/fs/cgroup/none"),
    ],
)
def test_targets(
    agent: Agent, pod: Pod, site: Callable[[Agent, Pod], Site], injection: KernelInjection, message: str
) -> None:
    before = look(pod)
    with pytest.raises(Refused) as refused:
        agent.grant(site(agent, pod), injection)
    assert message in str(refused.value) and "\n" not in str(refused.value)
    assert not agent.status() and not agent.entries()
    assert not difference(before, look(pod))


@pytest.mark.kernel
def test_a_controller_that_is_not_delegated(agent: Agent, pod: Pod) -> None:
    if pod.site.unified is None:
        pytest.skip("needs version 2 cgroups: in version 1 every group has what its controller has")
    inner = Path(pod.site.unified, "inner")
    inner.mkdir()
    try:
        with pytest.raises(Refused) as refused:
            agent.grant(msgspec.structs.replace(pod.site, unified=str(inner)), CpuLimit(TARGET, 0.5))
    finally:
        inner.rmdir()
    said = f"cgroup {inner} has no cpu.max: the controller cpu is not delegated to it; as root: echo +cpu > "
    assert str(refused.value) == f"{said}{pod.site.unified}/cgroup.subtree_control"
    assert not agent.status() and not agent.entries()


def test_a_namespace_that_was_replaced(agent: Agent, pod: Pod) -> None:
    nic = pod.site.nics[Interface.CONTROL]
    old = Nic(Link(msgspec.structs.replace(nic.link.namespace, inode=5), "eth0"))
    with pytest.raises(Refused, match="network namespace 5 is gone"):
        agent.grant(msgspec.structs.replace(pod.site, nics={Interface.CONTROL: old}), LINK)


def test_an_unknown_interface(agent: Agent, pod: Pod) -> None:
    nics = {Interface.CONTROL: Nic(Link(pod.network, "eth7"))}
    with pytest.raises(Refused, match="interface eth7 is gone"):
        agent.grant(msgspec.structs.replace(pod.site, nics=nics), LINK)


def test_a_held_lease(agent: Agent, pod: Pod) -> None:
    agent.grant(pod, LINK)
    with pytest.raises(Refused, match="lease lease-1 is held already"):
        agent.grant(pod, LINK)
    assert agent.renew().ok


@pytest.mark.skipif(not no_netem(), reason="this kernel has netem")
def test_netem_is_missing(agent: Agent, pod: Pod) -> None:
    with pytest.raises(Refused, match="this kernel has no netem"):
        agent.grant(pod, Shape(TARGET, Interface.DATA, delay_ms=10))


def test_nft_is_missing(pod: Pod) -> None:
    with started_agent(PATH="/nowhere") as own:
        with pytest.raises(Refused, match="the nft program is missing: install nftables"):
            own.grant(pod, Drop(TARGET))
        assert not own.status() and not own.entries()


def test_another_user(agent: Agent) -> None:
    assert stat.S_IMODE(os.stat(agent.socket).st_mode) == 0o600
    program = """
import os, socket, sys
end = socket.socket(socket.AF_UNIX)
os.setuid(65534)
end.connect(sys.argv[1])
end.sendall(b'{"do": "status"}\\n')
print(end.makefile().readline())
"""
    try:
        os.chmod(agent.socket, 0o666)
        os.chmod(agent.folder, 0o755)
        done = subprocess.run([sys.executable, "-c", program, agent.socket], capture_output=True, text=True, check=True)
    finally:
        os.chmod(agent.folder, 0o700)
        os.chmod(agent.socket, 0o600)
    assert "user 65534 is neither root nor the agent's" in done.stdout


def test_a_ledger_has_one_agent(agent: Agent) -> None:
    with pytest.raises(LedgerHeld, match="another agent holds the ledger"):
        Ledger(agent.ledger)


def test_what_cannot_be_read_in_the_ledger_is_left(tmp_path: Path) -> None:
    (tmp_path / "odd.lease").write_text("{}")
    assert not list(Ledger(tmp_path).entries())
    assert (tmp_path / "odd.lease").exists()


def test_entries_of_an_earlier_boot_are_dropped(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.write(Grant("lease-1", 5.0, LINK, Site(TARGET)), {})
    (entry,) = ledger.entries()
    path = tmp_path / "lease-1.lease"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(entry, boot="another")))
    assert not list(ledger.entries()) and not path.exists()
