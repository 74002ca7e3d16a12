"""Dead-man trials through `chaos run`, by the hundred: every fault held at once, injector, runner or both killed.

    python -m tests.benchmarks.dead_man_run [--trials 100] [--seed 1]

For the night, as root, from the repository's root. Prints a table and every leftover; exit 1 if there was one.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

from tests.conftest import JOBS
from tests.experiments.dead_man import VICTIMS, table, trial


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100, help="all together")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    path = os.pathsep.join(filter(None, [str(JOBS), os.environ.get("PYTHONPATH")]))
    done = []
    for number in range(arguments.trials):
        print(f"\r{number} of {arguments.trials}", end="", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="dead-man-") as folder:
            done.append(trial(Path(folder), {**os.environ, "PYTHONPATH": path}, VICTIMS[number % 3], chance))
        for what in done[-1].left:
            print(f"trial {number}, {done[-1].victim} killed: {what} is left", flush=True)
    print(table(done))
    return 1 if any(one.left for one in done) else 0


if __name__ == "__main__":
    sys.exit(main())
