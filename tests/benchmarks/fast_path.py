"""How often `fast_path` is right about real bytes: over soft RoCE, over TCP, and over TCP from some moment on.

    TORCHCHAOS_VM=PROGRAM python -m tests.benchmarks.fast_path [--runs 20] [--timeout-s 3600]

As root, from the repository's root. Exit 1 if a run over RDMA alone was found fault with, or another one passed or was
told with another time.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator

from chaos.api import Outcome
from tests.agent import stock_kernel
from tests.agent.grounds import RAILS, Grounds
from tests.agent.paths import Path, judged
from tests.agent.pods import Pod

WINDOWS = 3


def runs(number: int) -> Iterator[list[Path]]:
    """So many of each kind. A fallback comes in a window but the first, drawn by chance."""
    chance = random.Random(1)
    for _run in range(number):
        yield [Path.RDMA] * WINDOWS
        yield [Path.TCP] * WINDOWS
        before = chance.randint(1, WINDOWS - 1)
        yield [Path.RDMA] * before + [Path.TCP] * (WINDOWS - before)


def is_right(rails: Pod, windows: list[Path]) -> bool:
    found, since_s = judged(rails, windows)
    print(" ".join(path.value for path in windows), "->", found.outcome.value, found.reading, flush=True)
    if Path.TCP not in windows:
        return found.outcome is Outcome.PASS
    return found.outcome is Outcome.FAIL and f"from {since_s[windows.index(Path.TCP)]:.1f} s to" in found.reading


def wrong(number: int) -> int:
    with Grounds() as grounds:
        right = [is_right(grounds[RAILS], windows) for windows in runs(number)]
    print(
        f"{right.count(False)} of {len(right)} runs were judged wrong: {number} by RDMA, by TCP, with a fallback each"
    )
    return right.count(False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--timeout-s", type=int, default=3600, help="for the emulated machine")
    parser.add_argument("--here", action="store_true", help="in this machine, which has soft RoCE")
    arguments = parser.parse_args()
    if arguments.here:
        return 1 if wrong(arguments.runs) else 0
    options = ("--here", "--runs", str(arguments.runs))
    return stock_kernel.again("tests.benchmarks.fast_path", *options, within_s=arguments.timeout_s)


if __name__ == "__main__":
    sys.exit(main())
