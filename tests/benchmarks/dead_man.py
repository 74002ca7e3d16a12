"""Dead-man trials by the hundred: every injection held at once, client, agent or both killed at a random moment.

    python -m tests.benchmarks.dead_man [--trials 100] [--seed 1]

For the night, as root, from the repository's root. Prints a table and every leftover; exit 1 if there was one.
"""

from __future__ import annotations

import argparse
import random
import sys

from tests.agent.grounds import Grounds
from tests.agent.pods import started_agent
from tests.agent.trials import VICTIMS, table, trial


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100, help="of each kind of victim")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    done = []
    with started_agent() as agent, Grounds() as grounds:
        for number in range(arguments.trials):
            print(f"\r{number} of {arguments.trials}", end="", file=sys.stderr, flush=True)
            for victim in VICTIMS:
                done.append(trial(agent, grounds, victim, chance))
                for what, is_now in done[-1].left.items():
                    print(f"trial {number}, {victim} killed: {what} is {is_now}", flush=True)
    print(table(done))
    return 1 if any(one.left for one in done) else 0


if __name__ == "__main__":
    sys.exit(main())
