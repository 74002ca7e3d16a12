"""A whole run as an ordinary user: up, disturbed, restarted, stopped. Prints its isolation when all went well.

python rootless_run.py RUN_DIR ISOLATION
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
from clusters import toy_cluster

from chaos.model.events import MemberStarted
from chaos.model.injections import Delete, Process, Signal
from chaos.platforms.local import doctor


async def main(run_dir: Path, isolation: str) -> None:
    assert os.geteuid() != 0
    assert isolation in doctor.available() and "namespaces" not in doctor.available()
    async with toy_cluster(run_dir, isolation) as running:
        for member in ("replica-0", "replica-1"):
            await running.cluster.inject(Signal(member, Process.TRAINER, 9))
        await running.cluster.inject(Delete("replica-1"))
        await running.journal.ready("replica-1", 2)
        host = "replica-1" if isolation != "processes" else running.journal.of("replica-1", MemberStarted)[1].address
        assert await running.ask("replica-0", "reach", host=host) == "replica-1/2"
        await running.cluster.stop()
        assert await running.cluster.wait_job_over() == 0
    print(isolation)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
