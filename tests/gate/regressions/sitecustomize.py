"""Makes the real job worse, as a change of its code might: with this folder on PYTHONPATH and REGRESSION set.

    REGRESSION=restarts_late PYTHONPATH=tests/gate/regressions chaos gate smoke --baseline smoke.json

`restarts_late`: a new life of a worker begins 8 s later. `skips_commits`: while one of three replicas is away, the
others vote against every other step.
Python imports this by itself in every process; without REGRESSION it does nothing.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from typing import Any

RESTART_LATE_S = 8.0
REPLICAS, SKIPS_EVERY = 3, 2


class WorseManager:
    """Changes TorchFT's manager as soon as the job has imported its own."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "training.manager":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        make = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            make(module)
            skip_commits(module.WatchedClient)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def skip_commits(client: Any) -> None:
    vote_of_its_own = client.should_commit
    tries = 0

    def should_commit(self: Any, group_rank: int, step: int, vote: bool, timeout: Any) -> Any:
        nonlocal tries
        tries += self._owner.num_participants() < REPLICAS
        skips = self._owner.num_participants() < REPLICAS and tries % SKIPS_EVERY == 0
        return vote_of_its_own(self, group_rank, step, vote and not skips, timeout)

    client.should_commit = should_commit


regression = os.environ.get("REGRESSION")
if regression == "restarts_late" and "worker" in sys.orig_argv and "--incarnation" in sys.orig_argv:
    if int(sys.orig_argv[sys.orig_argv.index("--incarnation") + 1]) > 1:
        time.sleep(RESTART_LATE_S)
elif regression == "skips_commits":
    sys.meta_path.insert(0, WorseManager())  # type: ignore[arg-type]
