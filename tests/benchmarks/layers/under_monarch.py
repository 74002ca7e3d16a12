"""The ranks of ``plain`` as actors of a Monarch controller, on one host.

python -m tests.benchmarks.layers.under_monarch JOB_JSON FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
from monarch.actor import Actor, current_rank, endpoint, this_host

from tests.benchmarks.layers import plain
from training.process import free_port
from training.settings import Job

HOST = "127.0.0.1"


class Rank(Actor):  # type: ignore[misc]
    @endpoint  # type: ignore[untyped-decorator]
    def train(self, job: str, folder: str, port: int) -> None:
        order = msgspec.json.decode(job, type=Job)
        rank = str(current_rank().rank)
        os.environ.update(MASTER_ADDR=HOST, MASTER_PORT=str(port))
        os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=str(order.replicas))
        plain.train(order, Path(folder))


def main(job: str, folder: str) -> None:
    ranks = this_host().spawn_procs(per_host={"ranks": msgspec.json.decode(job, type=Job).replicas})
    # By its own name: what a module that is run defines is not found by others.
    from tests.benchmarks.layers.under_monarch import Rank as Named

    ranks.spawn("ranks", Named).train.call(job, folder, free_port(HOST)).get()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
