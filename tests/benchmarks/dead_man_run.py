"""Dead-man trials through `chaos run`, by the hundred: every fault held at once, injector, runner or both killed.

    python -m tests.benchmarks.dead_man_run [--trials 100] [--seed 1]

For the night, as root, from the repository's root. Prints every leftover, and at the end, or on Ctrl-C, a table; exit 1
if there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import JOBS
from tests.experiments.dead_man import VICTIMS, Trial, table, trial


def trials(number: int, chance: random.Random) -> Iterator[Trial]:
    """One after another, each kind of victim in turn."""
    path = os.pathsep.join(filter(None, [str(JOBS), os.environ.get("PYTHONPATH")]))
    for nth in range(number):
        print(f"\r{nth} of {number}", end="", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="dead-man-") as folder:
            done = trial(Path(folder), {**os.environ, "PYTHONPATH": path}, VICTIMS[nth % len(VICTIMS)], chance)
        for what in done.left:
            print(f"trial {nth}, {done.victim} killed: {what} is left", flush=True)
        yield done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100, help="all together")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    done: list[Trial] = []
    with contextlib.suppress(KeyboardInterrupt):
        for one in trials(arguments.trials, random.Random(arguments.seed)):
            done.append(one)
    print(table(done))
    return 1 if any(one.left for one in done) else 0


if __name__ == "__main__":
    sys.exit(main())
