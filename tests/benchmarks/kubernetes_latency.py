"""How long from the decision to the proof on Kubernetes: in force, and reverted, per injection.

    python -m tests.benchmarks.kubernetes_latency [PLATFORM_FILE] [--rounds 30]

Run by hand, from the repository's root, with tests/jobs on PYTHONPATH; without a platform file TORCHCHAOS_KUBE has a
cluster started for the time. Prints a table in milliseconds, as a runner sees it: object created, agent, kernel,
read-back, status. The goal is p95 <= 60 ms.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio

from chaos.load import load
from chaos.model.events import Event, TrainerStarted
from chaos.model.injections import CpuLimit, Drop, Freeze, HeldInjection, Interface, LinkDown, MemoryLimit, Shape
from chaos.model.plan import Plan
from chaos.model.ports import Deployment, Hold, InjectionRefused
from chaos.plan import plan
from chaos.platforms.kubernetes import options
from chaos.platforms.kubernetes.platform import KubernetesPlatform
from tests.benchmarks.injection_latency import WARM_UP, row
from tests.benchmarks.platforms import cluster

NAME = "replica-0"
JOB = ["workload.program=toyjob", "workload.recipe=toy", "workload.steps=1000000", "workload.settings.step_s=0.2"]


def kinds() -> Iterator[tuple[str, HeldInjection]]:
    yield "link down", LinkDown(NAME, Interface.DATA)
    yield "drop all", Drop(NAME)
    yield "rate", Shape(NAME, Interface.DATA, rate_bit_s=10_000_000)
    yield "freeze", Freeze(NAME)
    yield "cpu limit", CpuLimit(NAME, 0.5)
    yield "memory limit", MemoryLimit(NAME, limit_bytes=256 << 20)


async def measure(platform: KubernetesPlatform, planned: Plan, folder: Path, rounds: int) -> None:
    deployment = Deployment("latency", folder, planned.workload, planned.topology, time.monotonic())
    there = anyio.Event()

    def see(event: Event) -> None:
        if isinstance(event, TrainerStarted) and event.member == NAME:
            there.set()

    async with platform.deploy(deployment, see) as cluster:
        await there.wait()
        for name, injection in kinds():
            in_force, reverted = [], []
            try:
                for _ in range(WARM_UP + rounds):
                    begun = time.perf_counter()
                    hold: Hold
                    async with cluster.hold(injection) as hold:
                        held = time.perf_counter()
                    assert hold.reverted is not None, hold.trouble
                    in_force.append((held - begun) * 1000)
                    reverted.append((time.perf_counter() - held) * 1000)
                print(row(name, in_force[WARM_UP:], reverted[WARM_UP:]), flush=True)
            except InjectionRefused as error:
                print(f"{name:26}| {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("platform_file", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    planned = plan(load("steady", JOB))
    with cluster(arguments.platform_file) as found, tempfile.TemporaryDirectory() as folder:
        print(f"{'ms':26}| in force p50 p95 | reverted p50 p95")
        platform = KubernetesPlatform.reach(options.read(found.file), planned.workload, planned.topology)
        anyio.run(measure, platform, planned, Path(folder), arguments.rounds)


if __name__ == "__main__":
    main()
