"""What watching costs the job: steps per second with monitors and metrics on and off, paired within one run.

    python -m tests.benchmarks.overhead [--pairs 5] [--window-s 15] [--set KEY=VALUE ...]

Run by hand on a quiet machine, from the repository's root. One run of `steady` goes on through windows that are on and
off in turn. On: every monitor sees every event, metrics count it and are served and scraped each second. Off: the run
has its journal and its history and nothing else. Prints each pair, and the mean cost with its 95 % confidence; then the
same of the processor time of this process, which is where all of it happens: a job that keeps every core busy can lose
no larger share of its steps than is taken from the cores. Steps differ by far more than that from one window to the
next, so it is the time that says how little it is, and the steps that nothing else is in the way.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from math import sqrt
from pathlib import Path

import anyio
import msgspec

from chaos.check import PLAN, Judges
from chaos.journal import NAME, Journal
from chaos.load import load
from chaos.metrics.fold import Metrics
from chaos.metrics.serve import serving
from chaos.model.events import AnyEvent, Step
from chaos.model.history import History
from chaos.model.plan import Plan
from chaos.plan import plan as make_plan
from chaos.platforms.local.platform import LocalPlatform
from chaos.registry import monitors
from chaos.run.recorder import Recorder
from chaos.run.runner import _Run

T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
"""Student's t for so many degrees of freedom; for more of them the last one, which is a little wide."""
SCRAPE_S = 1.0


class Windows(Judges):
    """Judges that look away in every other window."""

    def __init__(self, plan: Plan, window_s: float, metrics: Metrics) -> None:
        super().__init__(plan)
        self._window_s = window_s
        self._count = metrics.begin(plan, "overhead")
        self.on = threading.Event()
        self.commits_s: dict[int, list[float]] = defaultdict(list)
        """Window -> when a replica committed in it."""
        self.began_s: dict[int, tuple[float, float]] = {}
        """Window -> processor time of this process, and time, at its first event."""

    def observe(self, event: AnyEvent) -> None:
        number = self._number(event)
        if number is not None:
            self.began_s.setdefault(number, (time.process_time(), time.monotonic()))
        if number is None or number % 2 == 0:
            self.on.set()
            super().observe(event)
            self._count(event, self.history)
        else:
            self.on.clear()
            self.history.apply(event)
        if number is not None and isinstance(event, Step) and event.committed and event.member == "replica-0":
            self.commits_s[number].append(event.t_s)

    def _number(self, event: AnyEvent) -> int | None:
        """The window of an event, from the first healthy steps on."""
        began = self.history.past.phases.get("disturb")
        return None if began is None else max(0, int((event.t_s - began.t_s) / self._window_s))

    def broken(self) -> None:
        """What is judged in parts is not to end the run."""

    def rates(self, number: int) -> list[float]:
        """Steps per second of the first so many windows."""
        return [
            (len(times_s) - 1) / (times_s[-1] - times_s[0])
            for times_s in map(self.commits_s.__getitem__, range(number))
        ]

    def shares(self, number: int) -> list[float]:
        """Of the processor time that all cores have, what this process took in each of the first so many windows."""
        began = [self.began_s[window] for window in range(number + 1)]
        return [
            (after[0] - before[0]) / (after[1] - before[1]) / len(os.sched_getaffinity(0))
            for before, after in itertools.pairwise(began)
        ]


def mean_and_confidence(values: list[float]) -> tuple[float, float]:
    """The mean, and how far either way of it the truth is with 95 % confidence."""
    return statistics.mean(values), T_95.get(len(values) - 1, T_95[9]) * statistics.stdev(values) / sqrt(len(values))


def scrape(url: str, windows: Windows, over: threading.Event) -> None:
    while not over.wait(SCRAPE_S):
        if windows.on.is_set():
            urllib.request.urlopen(url, timeout=10).read()


async def run(plan: Plan, windows: Windows, number: int, folder: Path) -> None:
    """Run until so many windows are over."""
    (folder / PLAN).write_bytes(msgspec.json.encode(plan))
    enough = anyio.Event()

    def see(event: AnyEvent, history: History) -> None:
        if number in windows.commits_s:
            enough.set()

    with Journal(folder / NAME) as journal:
        async with anyio.create_task_group() as tasks:
            recorder = Recorder(journal, windows, (see,))
            tasks.start_soon(_Run(plan, LocalPlatform(None), folder, recorder).execute)
            await enough.wait()
            tasks.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--window-s", type=float, default=15.0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    experiment = load("steady", ["workload.steps=1000000", "quiesce.common_steps=900000", *args.set])
    experiment = msgspec.structs.replace(experiment, monitors=dict.fromkeys(monitors()))
    experiment = msgspec.structs.replace(experiment, quiesce=msgspec.structs.replace(experiment.quiesce, timeout_s=1e6))
    plan, metrics, over = make_plan(experiment), Metrics(), threading.Event()
    windows = Windows(plan, args.window_s, metrics)
    with tempfile.TemporaryDirectory() as folder, serving(metrics.registry, ":0") as (url, _):
        scraping = threading.Thread(target=scrape, args=(url, windows, over))
        scraping.start()
        try:
            anyio.run(run, plan, windows, 2 * args.pairs, Path(folder))
        finally:
            over.set()
            scraping.join()
    rates, shares = windows.rates(2 * args.pairs), windows.shares(2 * args.pairs)
    pairs = [slice(at, at + 2) for at in range(0, 2 * args.pairs, 2)]
    costs = [1 - on / off for on, off in (rates[pair] for pair in pairs)]
    taken = [on - off for on, off in (shares[pair] for pair in pairs)]
    for pair, cost in zip(pairs, costs, strict=True):
        (on, off), (busy, less) = rates[pair], shares[pair]
        print(f"on {on:8.3f} steps/s, {busy:.2%} of the cores   off {off:8.3f} steps/s, {less:.2%}   cost {cost:+.2%}")
    if len(costs) > 1:
        for what, values in (("steps", costs), ("time of all cores", taken)):
            mean, half = mean_and_confidence(values)
            print(f"{what}: mean cost {mean:+.2%}, 95 % confidence {half:.2%} either way")


if __name__ == "__main__":
    main()
