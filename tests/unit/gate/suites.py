"""Suites and runs that need no job: an execution that is handed in says how each run went."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from chaos.gate import course
from chaos.gate.baseline import Baseline
from chaos.gate.course import Ended, Orders
from chaos.gate.suite import Suite, read
from chaos.model.experiment import Experiment
from chaos.model.gate import Gate
from chaos.model.verdict import Expectation, Finding, Outcome, Verdict

RECOVERY = "replicas_rejoin.recovery_s"
STACK = {"torchft": "0.2.0"}
MACHINE = {"cpu": "a", "cores": "2"}


def suite(folder: Path, *objectives: dict[str, Any], runs: int = 5, **more: Any) -> Suite:
    """A suite of `replica-lost`, read from a file as a user's."""
    entry = {"experiment": "replica-lost", "runs": runs, "objectives": list(objectives)}
    data = {"name": "a-gate", "why": "A test.", "budget_s": 1000, "confidence": 0.9, "experiments": [entry]} | more
    file = folder / "suite.yaml"
    file.write_text(yaml.safe_dump(data))
    return read(str(file))


def verdict(
    outcome: Outcome = Outcome.PASS, reason: str = "", expectation: Expectation | None = None, **measured: Any
) -> Verdict:
    """A verdict whose `replicas_rejoin` measured this and came to the outcome, `same_state` if `unsafe`."""
    unsafe = measured.pop("unsafe", False)
    findings = (
        Finding("replicas_rejoin", outcome, reason, measured),
        Finding("same_state", Outcome.FAIL if unsafe else Outcome.PASS, ""),
    )
    reasons = () if outcome is Outcome.PASS else (reason,)
    return Verdict(outcome, "replica-lost", "processes", reasons, findings, expectation)


def recovered(seconds: float) -> Verdict:
    return verdict(recovery_s=seconds, respawn_s=None)


BROKEN = verdict(Outcome.FAIL, "replicas_rejoin: replica-1 did not come back")
INVALID = verdict(Outcome.UNKNOWN, "fault_in_force: pod.kill did not strike")


class Runs:
    """Hands out verdicts in turn. `seeds` are those that were run."""

    def __init__(self, *verdicts: Verdict | Ended) -> None:
        self._next: Iterator[Verdict | Ended] = iter(verdicts)
        self.seeds: list[int] = []

    def __call__(self, experiment: Experiment, folder: Path, limit_s: float) -> tuple[Path, Verdict, Ended]:
        self.seeds.append(experiment.seed)
        one = next(self._next)
        run_dir = folder / f"run-{len(self.seeds)}-{experiment.seed}"
        if isinstance(one, Ended):
            return run_dir, verdict(Outcome.UNKNOWN, "the run was broken off: interrupted"), one
        return run_dir, one, Ended.DONE


def gated(
    asked: Suite,
    runs: Callable[..., Any],
    folder: Path,
    baseline: Baseline | None = None,
    before: Gate | None = None,
    **orders: Any,
) -> Gate:
    """The gate that comes of these runs."""
    budget_s = orders.pop("budget_s", asked.spec.budget_s)
    gate = before or course.begun(asked, STACK, MACHINE, None)
    return course.go(gate, Orders(asked, runs, folder, budget_s, baseline, say=lambda text: None, **orders))
