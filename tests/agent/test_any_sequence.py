"""Random sequences of grants, renewals, releases, expiries and crashes, against a model of the kernel state."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from chaos.agent.client import Refused
from chaos.agent.wire import TTL_S_MAX, TTL_S_MIN, State
from chaos.model.injections import CpuLimit, Drop, Freeze, Interface, KernelInjection, LinkDown, Shape
from tests.agent.cases import TARGET, nft_rules, no_nft
from tests.agent.pods import Agent, Pod, processes_of, run_in, side_by_side, wait_for

EXAMPLES = int(os.environ.get("TORCHCHAOS_EXAMPLES", "8"))
STEPS = 10

injections = st.one_of(
    st.builds(LinkDown, st.just(TARGET), st.sampled_from(Interface)),
    st.builds(CpuLimit, st.just(TARGET), st.integers(1, 200).map(lambda percent: percent / 100)),
    st.builds(Shape, st.just(TARGET), st.just(Interface.DATA), st.integers(1, 1000).map(lambda n: n * 8000)),
    st.just(Freeze(TARGET)),
    *([] if no_nft() else [st.builds(Drop, st.just(TARGET), percent=st.integers(1, 100))]),
)


class Sequence(RuleBasedStateMachine):
    """`held` is the model: what each lease asks for."""

    leases: Bundle[str] = Bundle("leases")

    def __init__(self, agent: Agent, pod: Pod) -> None:
        super().__init__()
        self.agent, self.pod = agent, pod
        self.held: dict[str, KernelInjection] = {}
        self.ended: dict[str, State] = {}
        self.forgotten: set[str] = set()
        self.count = 0

    @initialize()
    def nothing_is_held(self) -> None:
        assert not self.agent.status()

    @rule(target=leases, several=st.lists(injections, min_size=1, max_size=4))
    def grant(self, several: list[KernelInjection]) -> MultipleResults[str]:
        return multiple(*map(self.grant_one, several))

    def grant_one(self, injection: KernelInjection, ttl_s: float = TTL_S_MAX) -> str:
        self.count += 1
        lease = f"{id(self)}.{self.count}"
        assert self.agent.grant(self.pod, injection, lease, ttl_s)
        self.held[lease] = injection
        return lease

    @rule(lease=leases, injection=injections)
    def grant_again(self, lease: str, injection: KernelInjection) -> None:
        if lease in self.held:
            with pytest.raises(Refused, match="is held already"):
                self.agent.grant(self.pod, injection, lease)

    @rule(lease=leases)
    def renew(self, lease: str) -> None:
        if lease in self.forgotten:
            with pytest.raises(Refused, match="is known here"):
                self.agent.renew(lease)
            return
        reply = self.agent.renew(lease)
        assert (reply.ok, reply.state) == (lease in self.held, self.ended.get(lease, State.HELD))

    @rule(lease=consumes(leases))
    def release(self, lease: str) -> None:
        if lease in self.forgotten:
            with pytest.raises(Refused, match="is known here"):
                self.agent.release(lease)
            return
        if self.held.pop(lease, None):
            self.ended[lease] = State.RELEASED
        reply = self.agent.release(lease)
        assert reply.ok and reply.state is self.ended[lease]

    @rule(target=leases, injection=injections)
    def expire(self, injection: KernelInjection) -> str:
        lease = self.grant_one(injection, TTL_S_MIN)
        wait_for("it expires", lambda: lease not in self.agent.status())
        del self.held[lease]
        self.ended[lease] = State.EXPIRED
        return lease

    @precondition(lambda self: self.held or self.ended)
    @rule()
    def crash(self) -> None:
        self.agent.crash()
        self.forgotten |= self.ended.keys()  # Only of what it sweeps does a new agent know how it ended.
        self.ended = dict.fromkeys(self.held, State.SWEPT)
        self.held.clear()

    @invariant()
    def the_kernel_holds_what_the_leases_ask_for(self) -> None:
        assert seen(self.pod) == asked_for(list(self.held.values()))
        assert self.agent.status() == dict.fromkeys(self.held, State.HELD)
        assert len(self.agent.entries()) == len(self.held)

    def teardown(self) -> None:
        for lease in self.held:
            self.agent.release(lease)
        assert seen(self.pod) == asked_for([])


Kernel = tuple[set[str], int, int, bool, int]
"""Interfaces without a carrier; CPU quota in percent of a core, 0 for none; rate in bit/s; all stopped; drop rules."""


def asked_for(held: list[KernelInjection]) -> Kernel:
    down = {"eth0" if h.interface is Interface.CONTROL else "net1" for h in held if isinstance(h, LinkDown)}
    quota = min((round(h.cores * 100) for h in held if isinstance(h, CpuLimit)), default=0)
    rate = min((h.rate_bit_s or 0 for h in held if isinstance(h, Shape)), default=0)
    drops = sum(isinstance(h, Drop) for h in held)
    return down, quota, rate, any(isinstance(h, Freeze) for h in held), 2 * drops


def seen(pod: Pod) -> Kernel:
    """The same as files and programs show it."""
    pid = pod.main.pid
    links, queue, drops = side_by_side(
        partial(run_in, pid, "ip", "-o", "link", "show"),
        partial(run_in, pid, "tc", "qdisc", "show", "dev", "net1"),
        partial(nft_rules, pid),
    )
    down = {"eth0", "net1"} - set(re.findall(r"\d+: (\w+)@.*LOWER_UP", links))
    stopped = {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][1] == "T" for pid in processes_of(pod)}
    frozen = pod.site.unified is not None and "frozen 1" in Path(pod.site.unified, "cgroup.events").read_text()
    found = re.search(r"tbf c405: root .* rate (\d+)([KMG]?)bit", queue)
    rate = int(found[1]) * {"": 1, "K": 1000, "M": 1_000_000, "G": 1_000_000_000}[found[2]] if found else 0
    return down, quota(pod), rate, frozen or stopped == {True}, drops.count(" drop")


def quota(pod: Pod) -> int:
    if "cpu" in pod.site.groups:
        quota_us = int(Path(pod.site.groups["cpu"], "cpu.cfs_quota_us").read_text())
        return max(0, quota_us // 1000)
    assert pod.site.unified
    text = Path(pod.site.unified, "cpu.max").read_text().split()[0]
    return 0 if text == "max" else int(text) // 1000


@pytest.mark.kernel
def test_any_sequence(agent: Agent, pod: Pod) -> None:
    run_state_machine_as_test(
        lambda: Sequence(agent, pod),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
