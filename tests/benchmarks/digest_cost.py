"""What the digest of the state costs, against the step that it follows.

    python -m tests.benchmarks.digest_cost [--steps 40]

Run by hand on a quiet machine, from the repository's root. One real replica of ``cpu-debug`` trains in this process,
alone: with peers a step takes longer and a digest as long, so the share printed is the most that it can be. The goal
is below 1 % at the default period.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from training import cpu, events, faultpoints, lighthouse, recipes, workload
from training.settings import Settings

WARM_UP = 5


class Steps:
    """Takes the place of the writer of events: keeps how long each step took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def emit(self, event: events.Event) -> None:
        if isinstance(event, events.Step):
            self.seconds.append(event.duration_s)


def timed(call: Callable[[], Any], seconds: list[float]) -> Callable[[], Any]:
    """The call, which also notes how long it took."""

    def wrapped() -> Any:
        began = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - began)
        return result

    return wrapped


def measure(steps: int, scratch: str) -> tuple[list[float], list[float], int]:
    """Seconds of each step and of each digest, and bytes digested."""
    job = recipes.make_job("cpu-debug", replicas=1, min_replicas=1, steps=steps, seed=None, changes=["digest_every=1"])
    os.environ.update(workload.describe(job).env)
    cpu.install()
    from training import state, trainer

    server = lighthouse.start("127.0.0.1:0", 1, job.settings)
    store = trainer.open_store("127.0.0.1")
    config = recipes.trainer_config(
        job, member="replica-0", host="127.0.0.1", heal_host="127.0.0.1", lighthouse=server.address(), scratch=scratch
    )
    replica = trainer.ReplicaTrainer(config)
    taken, digests = Steps(), list[float]()
    replica._digest_now = timed(replica._digest_now, digests)
    replica.run(taken, faultpoints.FaultPoints(), started=lambda: None, tell=lambda _: None)
    entries = state.entries(replica.model_parts, replica.optimizers.optimizers)
    size = sum(value.nbytes for value in entries.values() if not isinstance(value, float))
    replica.manager.shutdown(wait=False)
    server.shutdown()
    del store
    return taken.seconds[WARM_UP:], digests[WARM_UP:], size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as scratch:
        step_s, digest_s, size = measure(steps, scratch)
    period = Settings().digest_every
    for name, seconds in (("step", step_s), ("digest", digest_s)):
        median, high = statistics.median(seconds), statistics.quantiles(seconds, n=20)[-1]
        print(f"{name:7} p50 {median * 1000:7.1f} ms, p95 {high * 1000:7.1f} ms")
    share = statistics.median(digest_s) / period / statistics.median(step_s)
    print(f"{size / 1e6:.0f} MB digested every {period} steps: {share:.2%} of a step")


if __name__ == "__main__":
    main()
