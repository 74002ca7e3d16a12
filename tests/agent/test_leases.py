"""A fault lasts as long as its lease is renewed, whoever dies, and overlapping faults end in any order."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
import msgspec
import pytest

from chaos.agent.client import Refused
from chaos.agent.wire import Grant, State
from chaos.model.injections import CpuLimit, Drop, Freeze, Interface, KernelInjection, LinkDown, MemoryLimit, Shape
from tests.agent.cases import MIB, TARGET, Case, difference, give_back_seen, look, no_nft, parameters, usable
from tests.agent.grounds import Grounds
from tests.agent.pods import SLOW, WAIT_S, Agent, Pod, make_pod, run_in, started_agent, wait_for
from tests.agent.trials import cases

needs_nft = pytest.mark.skipif(bool(no_nft()), reason="needs the nft program")

TTL_S = 0.6 if SLOW == 1 else 10.0
KEPT_TTL_S = 2.0 if SLOW == 1 else 15.0
"""Where a renewal must come in time, on a busy machine too."""


def test_without_renewal_it_ends_within_its_ttl(agent: Agent, pod: Pod) -> None:
    before = look(pod)
    agent.grant(pod, LinkDown(TARGET, Interface.CONTROL), ttl_s=TTL_S)
    granted = time.monotonic()
    wait_for("the lease is over", lambda: not agent.status())
    assert time.monotonic() - granted < TTL_S + 0.5 * SLOW
    give_back_seen(pod, before)
    assert agent.release().state is State.EXPIRED
    reply = agent.renew()
    assert not reply.ok and reply.state is State.EXPIRED


def renew_past_the_ttl(agent: Agent) -> None:
    until = time.monotonic() + 1.5 * KEPT_TTL_S
    while time.monotonic() < until:
        assert agent.renew().ok


def test_renewal_keeps_it(agent: Agent, pod: Pod) -> None:
    before = look(pod)
    agent.grant(pod, LinkDown(TARGET, Interface.CONTROL), ttl_s=KEPT_TTL_S)
    renew_past_the_ttl(agent)
    assert difference(before, look(pod))
    assert agent.release().state is State.RELEASED


@needs_nft
def test_renewal_keeps_drops_in_the_kernel(agent: Agent, pod: Pod) -> None:
    agent.grant(pod, Drop(TARGET), ttl_s=KEPT_TTL_S)
    renew_past_the_ttl(agent)
    assert not pod.hears()


OVERLAPS: dict[str, tuple[KernelInjection, ...]] = {
    "cpu": (CpuLimit(TARGET, 0.5), CpuLimit(TARGET, 0.25), CpuLimit(TARGET, 1)),
    "memory": (
        MemoryLimit(TARGET, limit_bytes=64 * MIB),
        MemoryLimit(TARGET, limit_bytes=32 * MIB, kill=True),
        MemoryLimit(TARGET, limit_bytes=48 * MIB),
    ),
    "rate": (
        Shape(TARGET, Interface.DATA, rate_bit_s=1_000_000),
        Shape(TARGET, Interface.DATA, rate_bit_s=3_000_000),
        Shape(TARGET, Interface.DATA, rate_bit_s=2_000_000),
    ),
    "links": (
        LinkDown(TARGET, Interface.DATA),
        LinkDown(TARGET, Interface.DATA),
        LinkDown(TARGET, Interface.CONTROL),
    ),
    "freeze": (Freeze(TARGET), Freeze(TARGET)),
    "drops": (Drop(TARGET), Drop(TARGET, percent=10), Drop(TARGET, ports=(80,))),
}


@pytest.mark.parametrize("kind", OVERLAPS)
def test_overlapping_faults_end_in_any_order(agent: Agent, pod: Pod, kind: str) -> None:
    if kind == "drops" and no_nft():
        pytest.skip("needs the nft program")
    before = look(pod)
    for order in itertools.permutations(range(len(OVERLAPS[kind]))):
        for number, injection in enumerate(OVERLAPS[kind]):
            agent.grant(pod, injection, f"lease-{number}")
        assert difference(before, look(pod))
        for number in order:
            assert agent.release(f"lease-{number}").ok
            assert all(agent.renew(lease).ok for lease in agent.status())
        give_back_seen(pod, before)


def test_a_limit_is_never_raised(agent: Agent, pod: Pod) -> None:
    agent.grant(pod, CpuLimit(TARGET, 0.25), "low")
    assert "0.25 cores" in agent.grant(pod, CpuLimit(TARGET, 4), "high")
    assert "0.25 cores" in agent.renew("high").evidence
    assert "4 cores" in agent.release("low").evidence


@pytest.mark.parametrize("case", parameters())
def test_after_a_crash_of_the_agent_everything_is_given_back(agent: Agent, grounds: Grounds, case: Case) -> None:
    pod = grounds[usable(case).ground]
    before = look(pod)
    agent.grant(case.at(pod.site), case.injection, ttl_s=TTL_S)
    agent.kill()
    if case.timed:
        wait_for("it ends without an agent", lambda: _is_over(case, pod, before))
    else:
        assert difference(before, look(pod)), "without an agent it stays"
    agent.start()
    give_back_seen(pod, before)
    assert not agent.entries()
    assert agent.release().state is State.SWEPT


def _is_over(case: Case, pod: Pod, before: dict[str, str]) -> bool:
    if isinstance(case.injection, Drop):
        return "expires" not in look(pod)["pod: nft"] and bool(pod.hears())
    return not difference(before, look(pod))


HOLD = """
import sys, anyio, msgspec
from chaos.agent.client import Agent
from chaos.agent.wire import Grant

async def main():
    async with Agent(sys.argv[1]).hold(msgspec.json.decode(sys.argv[2], type=Grant)):
        print("held", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def hold(agent: Agent, grant: Grant) -> subprocess.Popen[bytes]:
    """A client that holds a lease and renews it, as a process of its own."""
    command = [sys.executable, "-c", HOLD, str(agent.socket), msgspec.json.encode(grant).decode()]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert holder.stdout and holder.stdout.readline() == b"held\n"
    return holder


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def test_a_client_that_is_killed_renews_no_more(agent: Agent, pod: Pod) -> None:
    before = look(pod)
    holder = hold(agent, Grant("lease-1", KEPT_TTL_S, LinkDown(TARGET, Interface.CONTROL), pod.site))
    until = time.monotonic() + 1.5 * KEPT_TTL_S
    while time.monotonic() < until:
        assert agent.status() == {"lease-1": State.HELD}
    end(holder)
    killed = time.monotonic()
    wait_for("the lease is over", lambda: not agent.status())
    assert time.monotonic() - killed < KEPT_TTL_S + 0.5 * SLOW
    give_back_seen(pod, before)


def test_client_and_agent_killed_at_once(agent: Agent, pod: Pod) -> None:
    before = look(pod)
    holder = hold(agent, Grant("lease-1", TTL_S, LinkDown(TARGET, Interface.CONTROL), pod.site))
    end(holder)
    agent.kill()
    agent.start()
    give_back_seen(pod, before)
    assert not agent.entries()


def test_a_client_learns_that_its_agent_was_replaced(agent: Agent, pod: Pod) -> None:
    async def main() -> None:
        grant = Grant("lease-1", 5.0, LinkDown(TARGET, Interface.CONTROL), pod.site)
        async with agent.asked.hold(grant) as held:
            await anyio.to_thread.run_sync(agent.crash)
            with anyio.fail_after(WAIT_S):
                while not held.lost:
                    await anyio.sleep(0.01)
        assert "swept" in held.lost
        assert held.reverted and held.reverted.state is State.SWEPT

    anyio.run(main)


def test_hold_gives_back_at_the_end(agent: Agent, pod: Pod) -> None:
    before = look(pod)

    async def main() -> None:
        async with agent.asked.hold(Grant("lease-1", 5.0, LinkDown(TARGET, Interface.CONTROL), pod.site)) as held:
            assert "carrier 0" in held.evidence
        assert held.reverted and held.reverted.ok and "carrier 1" in held.reverted.evidence

    anyio.run(main)
    give_back_seen(pod, before)


def test_hold_lets_errors_through_as_they_are(agent: Agent, pod: Pod) -> None:
    async def main() -> None:
        async with agent.asked.hold(Grant("lease-1", 5.0, LinkDown(TARGET, Interface.CONTROL), pod.site)):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        anyio.run(main)
    assert not agent.status()


def test_sigterm_gives_everything_back(pod: Pod) -> None:
    before = look(pod)
    with started_agent() as own:
        own.grant(pod, LinkDown(TARGET, Interface.CONTROL), "link")
        own.grant(pod, CpuLimit(TARGET, 0.5), "cpu")
        own.grant(pod, Freeze(TARGET), "freeze")
        assert own.stop() == 0
        assert not own.entries()
    give_back_seen(pod, before)


def test_a_target_that_died_needs_no_revert(agent: Agent) -> None:
    with make_pod() as mortal:
        for case in cases():
            agent.grant(case.at(mortal.site), case.injection, case.name)
        mortal.kill()
        wait_for("its namespace is gone", lambda: not os.path.exists(mortal.network.path))
        states = {}
        for case in cases():
            agent.renew(case.name)
            reply = agent.release(case.name)
            assert reply.ok and reply.evidence
            assert reply.state is State.RELEASED or "nothing to give back" in reply.evidence
            states[case.name] = reply.state
        assert not agent.entries()
    went_with_it = {name for name, state in states.items() if state is State.GONE}
    assert {"link-down-by-peer", "link-down-itself", "rate"} <= went_with_it
    assert {"cpu-limit", "memory-limit", "disk-fill"} & went_with_it == set()


def test_a_revert_that_fails_is_tried_until_it_works(agent: Agent, pod: Pod) -> None:
    if "cpu" not in pod.site.groups:
        pytest.skip("needs version 1 cgroups: only there can a parent forbid what a child had")
    parent = Path(pod.site.groups["cpu"])
    child = parent / "child"
    child.mkdir()
    site = msgspec.structs.replace(pod.site, groups={"cpu": str(child)})
    try:
        (child / "cpu.cfs_quota_us").write_text("200000")
        agent.grant(site, CpuLimit(TARGET, 0.5))
        (parent / "cpu.cfs_quota_us").write_text("100000")
        reply = agent.release()
        assert reply.state is State.STUCK and "Invalid argument" in reply.error
        assert agent.status() == {"lease-1": State.STUCK} and agent.entries()
        agent.crash()
        assert agent.status() == {"lease-1": State.STUCK} and agent.entries()
        (parent / "cpu.cfs_quota_us").write_text("-1")
        wait_for("it is given back", lambda: not agent.status())
        assert (child / "cpu.cfs_quota_us").read_text().strip() == "200000"
        assert agent.release().state is State.SWEPT
    finally:
        (parent / "cpu.cfs_quota_us").write_text("-1")
        child.rmdir()


def test_a_link_that_someone_else_set_up_is_cut_again_at_renewal(agent: Agent, pod: Pod) -> None:
    agent.grant(pod, LinkDown(TARGET, Interface.CONTROL))
    run_in(pod.node.pid, "ip", "link", "set", "control-0", "up")
    assert "carrier 0" in agent.renew().evidence


@needs_nft
def test_a_table_that_someone_else_removed_is_made_again_at_renewal(agent: Agent, pod: Pod) -> None:
    agent.grant(pod, Drop(TARGET))
    run_in(pod.main.pid, "nft", "delete", "table", "inet", "torchchaos")
    assert pod.hears()
    assert agent.renew().ok
    assert not pod.hears()


def test_an_unknown_lease(agent: Agent) -> None:
    for ask in (agent.renew, agent.release):
        with pytest.raises(Refused, match="no lease nothing is known here"):
            ask("nothing")
