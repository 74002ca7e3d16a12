"""Kills of the agent while it holds faults of RDMA ports, over soft RoCE: what is left, and whether traffic goes on.

    TORCHCHAOS_VM=PROGRAM python -m tests.benchmarks.rdma_dead_man [--kills 50] [--timeout-s 3600]

As root, from the repository's root. Exit 1 if something was left.
"""

from __future__ import annotations

import argparse
import random
import sys

from chaos.agent.wire import TTL_S_MAX
from tests.agent import stock_kernel
from tests.agent.cases import CASES, difference, look
from tests.agent.grounds import RAILS, Grounds
from tests.agent.pods import started_agent, wait_for
from tests.agent.rails import measured


def kills(number: int) -> int:
    """How many of so many kills left something. Each falls while one case, drawn by chance, is in force."""
    chance, bad = random.Random(1), 0
    with started_agent() as agent, Grounds() as grounds:
        pod = grounds[RAILS]
        before = look(pod)
        for count in range(number):
            case = chance.choice([case for case in CASES if case.ground == RAILS])
            agent.grant(pod, case.injection, f"kill-{count}", TTL_S_MAX)
            agent.crash()
            left = difference(before, look(pod)) | dict.fromkeys(agent.entries(), "in the ledger")
            if left:
                wait_for("it settles", lambda: not difference(before, look(pod)))
            bad += bool(left)
            print(f"kill {count + 1} of {number}: {case.name}, left: {', '.join(left) or 'nothing'}", flush=True)
        works = measured(pod, "ib_write_bw", "-s", "4096", "-n", "50")
    print(f"{bad} of {number} kills left something; RDMA traffic afterwards: {works[3] if works else 'NONE'} MB/s")
    return bad + (works is None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--timeout-s", type=int, default=3600, help="for the emulated machine")
    parser.add_argument("--here", action="store_true", help="in this machine, which has soft RoCE")
    arguments = parser.parse_args()
    if arguments.here:
        return 1 if kills(arguments.kills) else 0
    options = ("--here", "--kills", str(arguments.kills))
    return stock_kernel.again("tests.benchmarks.rdma_dead_man", *options, within_s=arguments.timeout_s)


if __name__ == "__main__":
    sys.exit(main())
