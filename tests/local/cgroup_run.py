"""A run with cgroups of version 2, for a machine that has them. Prints the controllers that each pod got.

python cgroup_run.py RUN_DIR
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import anyio
from clusters import toy_cluster

from chaos.model.events import MemberExited
from chaos.model.injections import Delete
from chaos.platforms.local import cgroups, doctor


async def main(run_dir: Path) -> None:
    (hierarchy,) = cgroups.hierarchies()
    assert hierarchy.version == 2, hierarchy
    for check in doctor.probe():
        print(check, flush=True)
    async with toy_cluster(run_dir, "namespaces", replicas=1) as running:
        group = Path(hierarchy.mount + await own_group(running, 1))
        controllers = set((group / "cgroup.controllers").read_text().split())
        assert (group / "cpu.max").exists() and (group / "memory.max").exists() and (group / "cgroup.freeze").exists()
        assert len((group / "cgroup.procs").read_text().split()) == 2, "main process and trainer"
        await running.cluster.inject(Delete("replica-0"))
        await running.journal.wait(lambda event: isinstance(event, MemberExited))
        assert not group.exists()
        await running.journal.ready("replica-0", 2)
        await own_group(running, 2)
        assert len(list(cgroups.tops())) == 1
    assert not list(cgroups.tops())
    print("controllers:", *sorted(controllers))


async def own_group(running: object, life: int) -> str:
    look = await running.ask("replica-0", "look")  # type: ignore[attr-defined]
    found = re.fullmatch(rf"0::(/torchchaos-[\d-]+/node-0/replica-0\.{life})", look["groups"].strip())
    assert found, look["groups"]
    return found.group(1)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
