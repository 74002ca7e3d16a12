"""How long from the decision to the proof: in force, and reverted, per injection.

    python -m tests.benchmarks.injection_latency [--rounds 100]

Run by hand as root on a quiet machine, from the repository's root. Prints a table in milliseconds, as a client sees it:
request, ledger, kernel, read-back, reply. The goal is p95 <= 20 ms for links, drops, processes and cgroups.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

import anyio
import msgspec

from chaos.agent import client
from chaos.agent.wire import Grant
from chaos.model.injections import (
    CpuLimit,
    DiskFill,
    Drop,
    Freeze,
    Interface,
    IoLimit,
    KernelInjection,
    LinkDown,
    MemoryLimit,
    Shape,
)
from chaos.model.site import Site
from tests.agent.cases import without_peers
from tests.agent.pods import make_pod, started_agent

WARM_UP = 3


def kinds(site: Site) -> Iterator[tuple[str, Site, KernelInjection]]:
    """A name, where, and what."""
    name = site.name
    yield "link down, by its peer", site, LinkDown(name, Interface.DATA)
    yield "link down, itself", without_peers(site), LinkDown(name, Interface.DATA)
    yield "drop all", site, Drop(name)
    yield "drop 5 % of two ports", site, Drop(name, ports=(80, 443), percent=5)
    yield "rate", site, Shape(name, Interface.DATA, rate_bit_s=10_000_000)
    yield "delay", site, Shape(name, Interface.DATA, delay_ms=20)
    yield "freeze", site, Freeze(name)
    yield "cpu limit", site, CpuLimit(name, 0.5)
    yield "memory limit", site, MemoryLimit(name, limit_bytes=64 << 20)
    yield "i/o limit", msgspec.structs.replace(site, folder="/"), IoLimit(name, 1 << 20)
    yield "disk fill, 64 MiB", site, DiskFill(name, 0)


async def measure(
    agent: client.Agent, site: Site, injection: KernelInjection, rounds: int
) -> tuple[list[float], list[float]]:
    """Milliseconds to the proofs of being in force, and of being reverted."""
    in_force, reverted = [], []
    for number in range(WARM_UP + rounds):
        begun = time.perf_counter()
        await agent.grant(Grant(f"round-{number}", 10.0, injection, site))
        held = time.perf_counter()
        assert (await agent.release(f"round-{number}")).ok
        over = time.perf_counter()
        in_force.append((held - begun) * 1000)
        reverted.append((over - held) * 1000)
    return in_force[WARM_UP:], reverted[WARM_UP:]


def row(name: str, *columns: list[float]) -> str:
    cells = [f"{statistics.median(c):6.1f} {statistics.quantiles(c, n=20)[-1]:6.1f}" for c in columns]
    return f"{name:26}| {' | '.join(cells)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    print(f"{'ms':26}| in force p50 p95 | reverted p50 p95")
    with started_agent() as agent, make_pod() as pod:
        for name, site, injection in kinds(pod.site):
            try:
                print(row(name, *anyio.run(measure, agent.asked, site, injection, rounds)), flush=True)
            except client.Refused as error:
                print(f"{name:26}| {error}")


if __name__ == "__main__":
    main()
