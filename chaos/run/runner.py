"""Runs a plan: deploy, baseline, disturb, quiesce, drain. Reads top-down.

What happens goes into the journal and nowhere else; the verdict is made from the journal afterwards. However a run
ends, the platform's context gives everything back first and the journal gets its last word.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import anyio

from chaos.check import PLAN, Judges, digest
from chaos.files import json_of
from chaos.journal import NAME, Journal, JournalBroken
from chaos.model.events import (
    PhaseFailed,
    PhaseStarted,
    RunEnded,
    RunStarted,
)
from chaos.model.history import Activity, History
from chaos.model.plan import Plan
from chaos.model.ports import Cluster, Deployment, Platform, RunAborted, Watcher
from chaos.run.disturb import Disturber
from chaos.run.recorder import RUNNER, Recorder

STOP_TIMEOUT_S = 60.0
PACKAGES = ("torchchaos", "torch", "torchft", "torchmonarch", "torchtitan")


def stack() -> dict[str, str]:
    """The versions of what is tested, as this interpreter has them."""
    return {name: _version(name) for name in PACKAGES}


async def run(plan: Plan, platform: Platform, run_dir: Path, watchers: tuple[Watcher, ...] = ()) -> None:
    """Run `plan` on `platform`; `run_dir` gets plan.json and journal.jsonl. Cancelling it ends the run in order."""
    (run_dir / PLAN).write_bytes(json_of(plan))
    with Journal(run_dir / NAME) as journal:
        await _Run(plan, platform, run_dir, Recorder(journal, Judges(plan), watchers)).execute()


class _PhaseFailed(Exception):
    """A phase did not reach its aim; the run goes on to drain."""


class _Run:
    def __init__(self, plan: Plan, platform: Platform, run_dir: Path, recorder: Recorder) -> None:
        self._plan = plan
        self._platform = platform
        self._run_dir = run_dir
        self._recorder = recorder
        self._epoch_mono_s = time.monotonic()
        self._phase = ""

    async def execute(self) -> None:
        self._emit_start()
        try:
            async with self._platform.deploy(self._deployment(), self._recorder.emit) as cluster:
                reason = await self._watched_phases(cluster)
                await self._drain(cluster)
            self._emit_end(completed=True, reason=reason)
        except BaseException as error:
            if not _holds(error, JournalBroken):
                self._emit_end(completed=False, reason=_reason(error))
            raise

    async def _watched_phases(self, cluster: Cluster) -> str:
        """Go through the phases; end early when safety breaks or the job ends by itself."""
        ended_early: list[str] = []

        async with anyio.create_task_group() as tasks:

            async def watch_safety() -> None:
                await self._recorder.broken.wait()
                ended_early.append("a safety property is broken")
                tasks.cancel_scope.cancel()

            async def watch_job() -> None:
                status = await cluster.wait_job_over()
                ended_early.append(f"the job ended by itself, the controller's status is {status}")
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch_safety)
            tasks.start_soon(watch_job)
            await self._phases(cluster)
            tasks.cancel_scope.cancel()
        if not ended_early:
            return "all phases done"
        if not self._recorder.broken.is_set():
            self._emit_phase_failed(ended_early[0])
        return ended_early[0]

    async def _phases(self, cluster: Cluster) -> None:
        experiment = self._plan.experiment
        try:
            self._begin("deploy")
            await self._reach(_all_training, experiment.baseline.timeout_s, "every replica trains")
            self._begin("baseline")
            await self._reach(
                lambda history: history.common_steps >= experiment.baseline.steps,
                experiment.baseline.timeout_s,
                f"{experiment.baseline.steps} steps in a row committed by every replica",
            )
            self._begin("disturb")
            disturber = Disturber(self._plan, cluster, self._recorder, self._now_s)
            async with anyio.create_task_group() as tasks:
                for fault in self._plan.faults:
                    tasks.start_soon(disturber.disturb, fault)
            self._begin("quiesce")
            await self._reach(
                lambda history: history.common_steps >= experiment.quiesce.common_steps,
                experiment.quiesce.timeout_s,
                f"{experiment.quiesce.common_steps} more steps in a row committed by every replica",
            )
        except _PhaseFailed as failure:
            self._emit_phase_failed(str(failure))

    async def _drain(self, cluster: Cluster) -> None:
        self._begin("drain")
        with anyio.move_on_after(STOP_TIMEOUT_S) as stopping:
            await cluster.stop()
        if stopping.cancelled_caught:
            self._emit_phase_failed(f"the job did not stop within {STOP_TIMEOUT_S:.0f} s")

    async def _reach(self, condition: Callable[[History], bool], timeout_s: float, aim: str) -> None:
        with anyio.move_on_after(timeout_s) as waiting:
            await self._recorder.until(condition)
        if waiting.cancelled_caught:
            raise _PhaseFailed(f"not reached within {timeout_s:g} s: {aim}")

    def _deployment(self) -> Deployment:
        return Deployment(
            run_id=self._run_dir.name,
            run_dir=self._run_dir,
            workload=self._plan.workload,
            topology=self._plan.topology,
            epoch_mono_s=self._epoch_mono_s,
        )

    def _now_s(self) -> float:
        return time.monotonic() - self._epoch_mono_s

    def _begin(self, phase: str) -> None:
        self._phase = phase
        self._recorder.emit(PhaseStarted(t_s=self._now_s(), member=RUNNER, phase=phase))

    def _emit_phase_failed(self, reason: str) -> None:
        self._recorder.emit(PhaseFailed(t_s=self._now_s(), member=RUNNER, phase=self._phase, reason=reason))

    def _emit_start(self) -> None:
        self._recorder.emit(
            RunStarted(
                t_s=self._now_s(),
                member=RUNNER,
                plan=digest(self._plan),
                platform=self._platform.name,
                isolation=self._platform.isolation(),
                wall_s=time.time(),
                versions=stack(),
            )
        )

    def _emit_end(self, *, completed: bool, reason: str) -> None:
        self._recorder.emit(RunEnded(t_s=self._now_s(), member=RUNNER, completed=completed, reason=reason))


def _all_training(history: History) -> bool:
    return all(replica.activity is Activity.TRAINING for replica in history.replicas)


def _holds(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_holds(inner, kind) for inner in error.exceptions)
    return isinstance(error, kind)


def _reason(error: BaseException) -> str:
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return "interrupted"
    if isinstance(error, RunAborted):
        return str(error)
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_reason(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
