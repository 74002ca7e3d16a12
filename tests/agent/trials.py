"""Dead-man trials: hold every injection at once, kill someone at a random moment, look what is left."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from chaos.agent.client import Agent as Client
from chaos.agent.client import AgentLost
from chaos.agent.wire import TTL_S_MIN, Grant
from chaos.model.injections import Interface, LinkDown
from tests.agent.cases import CASES, TARGET, Case, Seen, difference, look, without_peers
from tests.agent.grounds import Grounds
from tests.agent.pods import SLOW, WAIT_S, Agent, Pod, wait_for

VICTIMS = ("client", "agent", "client and agent")
TTL_S = TTL_S_MIN * SLOW
SETTLE_S = 2.0 * SLOW
"""The kernel calls a link usable up to a second after it is up."""

_fork = multiprocessing.get_context("fork")

_HELD_APART = {
    "link-down-by-peer": Case("link-down-by-peer", LinkDown(TARGET, Interface.DATA)),
    "link-down-itself": Case("link-down-itself", LinkDown(TARGET, Interface.CONTROL), at=without_peers),
}


def cases() -> list[Case]:
    """Those this machine can do, aimed so that all can be held at once."""
    return [_HELD_APART.get(case.name, case) for case in CASES if not case.missing()]


@dataclass
class Trial:
    """`held`: cases that were in force when the victim died. `over_s`: from then until nothing was left."""

    victim: str
    held: list[str] = field(default_factory=list)
    left: Seen = field(default_factory=dict)
    over_s: float = 0.0


def trial(agent: Agent, grounds: Grounds, victim: str, chance: random.Random, of: Sequence[Case] = ()) -> Trial:
    """One trial, of all cases if none are given. The moment may also fall into a grant, or between two renewals."""
    all_cases = chance.sample(of or cases(), k=len(of or cases()))
    pods = {case.ground: grounds[case.ground] for case in all_cases}
    before = _look(pods)
    grants = [Grant(case.name, TTL_S, case.injection, case.at(pods[case.ground].site)) for case in all_cases]
    held: multiprocessing.SimpleQueue[str] = _fork.SimpleQueue()
    client = _fork.Process(target=_hold_all, args=(agent.socket, grants, held), daemon=True)
    client.start()
    try:
        first = held.get()
        time.sleep(chance.uniform(0, 2 * TTL_S))
    finally:
        if "client" in victim:
            client.kill()
        if "agent" in victim:
            agent.kill()
    died = time.monotonic()
    done = Trial(victim, [first])
    while not held.empty():
        done.held.append(held.get())
    if "agent" in victim:
        wait_for("what the kernel ends by itself", lambda: _timed_are_over(_look(pods), before))
        agent.start()
    else:
        wait_for("all leases to end", lambda: not agent.status())
    done.over_s = time.monotonic() - died
    client.kill()
    client.join(WAIT_S)
    wait_for("a client's last word", lambda: not agent.status())
    deadline = time.monotonic() + SETTLE_S
    while (left := difference(before, _look(pods))) and time.monotonic() < deadline:
        pass
    done.left = left | dict.fromkeys(agent.entries(), "in the ledger")
    return done


def _hold_all(socket: Path, grants: list[Grant], held: multiprocessing.SimpleQueue[str]) -> None:
    """Of a process of its own: hold every lease, tell which is in force, renew until killed."""

    async def hold(grant: Grant) -> None:
        try:
            async with Client(socket).hold(grant):
                held.put(grant.lease)
                await anyio.sleep_forever()
        except AgentLost:
            return

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for grant in grants:
                tasks.start_soon(hold, grant)

    anyio.run(main)


def _look(pods: dict[str, Pod]) -> Seen:
    return {f"{ground} {what}": seen for ground, pod in pods.items() for what, seen in look(pod).items()}


def _timed_are_over(now: Seen, before: Seen) -> bool:
    return "expires" not in now.get("pod pod: nft", "") and now.get("pod free") == before.get("pod free")


def table(trials: list[Trial]) -> str:
    """One line per injection: trials in which it was in force, by victim; leftovers."""
    lines = [f"{'in force when it died':24}| {' | '.join(VICTIMS)} | leftovers"]
    counts = Counter((name, trial.victim) for trial in trials for name in trial.held)
    left = sum(bool(trial.left) for trial in trials)
    for case in cases():
        lines.append(f"{case.name:24}| {' | '.join(str(counts[case.name, victim]) for victim in VICTIMS)} | {left}")
    for victim in VICTIMS:
        times = sorted(trial.over_s for trial in trials if trial.victim == victim)
        if times:
            lines.append(f"{victim}: over after {times[len(times) // 2]:.2f} s (median), {times[-1]:.2f} s (longest)")
    return "\n".join(lines)
