"""Dead-man trials on Kubernetes, by the hundred: every injection held at once, then runner, agent, both, the API server
or the node's NIC is taken.

    python -m tests.benchmarks.kubernetes_dead_man [PLATFORM_FILE] [--trials 100] [--seed 1]

For a cluster whose nodes are on this machine, as root, from the repository's root; without a platform file
TORCHCHAOS_KUBE has one started for the time. One trial is one injection under one victim. Prints a table; exit 1 when
anything was left or came late.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from tests.benchmarks.platforms import cluster
from tests.kubernetes import dead_man
from tests.kubernetes.dead_man import Job, Trial


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("platform_file", type=Path, nargs="?")
    parser.add_argument("--trials", type=int, default=100, help="all together, at least")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    done: list[Trial] = []
    with cluster(arguments.platform_file) as found, dead_man.targets(found, dead_man.NODE) as (one, two):
        held = list(dead_man.kinds(one, two, dead_man.NODE))
        looks = {name: look for name, _, look in held}
        while sum(len(trial.reverted_s) for trial in done) < arguments.trials:
            victim = dead_man.VICTIMS[len(done) % len(dead_man.VICTIMS)]
            job = Job(found.namespace, f"dm{len(done)}", [order for _, order, _ in held])
            done.append(dead_man.trial(victim, job, looks, chance.uniform(0, 2 * dead_man.TTL_S)))
            print(f"{victim}: worst {max(done[-1].reverted_s.values(), default=0):.2f} s {done[-1].left}", flush=True)
    print(dead_man.table(done))
    return 1 if any(trial.left or trial.late() for trial in done) else 0


if __name__ == "__main__":
    sys.exit(main())
