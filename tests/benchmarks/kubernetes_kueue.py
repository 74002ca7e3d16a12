"""The table of what Kueue does with a fault-tolerant job: layout by scenario.

    TORCHCHAOS_KUBE=FOLDER python -m pytest -s tests/benchmarks/kubernetes_kueue.py

Each row is a run with the toy job of two replicas that ask for eight GPUs each: who was admitted and how soon after
the beginning of the run, whose lives began, how long a dead pod's successor took, and the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from chaos.journal import NAME, Reading
from chaos.model.events import InjectionInForce, MemberStarted
from chaos.model.verdict import Verdict
from tests.kubernetes.conftest import TOY, Cluster, cluster, meshes, operator  # noqa: F401
from tests.kubernetes.test_kueue import LAYOUTS, RACK, TWO, Told, foreign, kueue, queued  # noqa: F401

LEVEL = ("--set", f"monitors.placement.level={RACK}", "--set", "quiesce.timeout_s=15")


@contextmanager
def with_room(cluster: Cluster, scenario: str) -> Iterator[None]:  # noqa: F811
    """Sixteen GPUs on two nodes; two of them taken, or eight more on a third."""
    if scenario == "14 of 16 free":
        with foreign(cluster, 2):
            yield
        return
    labels = {"example.com/pool": "gpus", RACK: "r0"} if scenario == "node lost, a spare" else {}
    node = cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[-1:].metadata.name}").stdout
    cluster.kubectl("label", "node", node, *(f"{name}={value}" for name, value in labels.items()))
    yield
    cluster.kubectl("label", "node", node, *(f"{name}-" for name in labels))


EXPERIMENTS = {
    "14 of 16 free": "steady",
    "pod death": "kueue/pod-lost",
    "node lost, a spare": "kueue/node-lost-with-spare",
    "node lost, no spare": "kueue/node-lost-without-spare",
}


@pytest.mark.parametrize("scenario", EXPERIMENTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_row(kueue, operator, tmp_path, layout, scenario):  # noqa: F811
    asked, runs = queued(kueue, tmp_path, layout), tmp_path / "runs"
    judging = () if scenario == "14 of 16 free" else LEVEL
    with with_room(kueue, scenario):
        done = asked.run(EXPERIMENTS[scenario], runs, *TOY, *TWO, *judging)
    told = Told.by(runs)
    admitted = ", ".join(f"{member} {at_s:.1f} s" for member, at_s in sorted(told.admitted.items())) or "nobody"
    print(f"| {layout} | {scenario} | {admitted} | {', '.join(told.begun) or 'nobody'} | {ending(runs, done.stderr)} |")


def ending(runs: Path, said: str) -> str:
    """How soon after the hit a replica's next life began, and the verdict; or what ended the run."""
    (folder,) = runs.iterdir()
    if not (folder / "verdict.json").exists():
        return said.strip().removeprefix("chaos: ")
    verdict = msgspec.json.decode((folder / "verdict.json").read_bytes(), type=Verdict)
    events = list(Reading(folder / NAME).events())
    hit = next((event for event in events if isinstance(event, InjectionInForce)), None)
    lives = [event for event in events if isinstance(event, MemberStarted) and hit and event.seq > hit.seq]
    back = f"back after {lives[0].t_s - hit.t_s:.1f} s" if hit and lives else "never back"
    return f"{back}; {verdict.outcome.value}"
