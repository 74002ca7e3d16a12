"""The Monarch actor of one replica: runs the trainer to its end in a process of its own.

The process ends with its worker host, and ends itself when the trainer fails: there is one way to recover, a new life
of the whole member. Light to import, because Monarch imports it before the trainer may announce itself.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING

import msgspec
from monarch.actor import Actor, endpoint

from training import announce, events, faultpoints, process, recipes

if TYPE_CHECKING:
    from training.trainer import ReplicaTrainer

log = logging.getLogger(__name__)


class TrainerActor(Actor):  # type: ignore[misc]
    """Runs one trainer. Sync endpoints: TorchTitan's loop is synchronous and keeps its thread."""

    @endpoint  # type: ignore[untyped-decorator]
    def train(self, assignment: bytes) -> str:
        """Train to the end of the job; gives the reason. A failure ends the process with status 1."""
        return Life(msgspec.json.decode(assignment, type=announce.Assignment)).run()


class Life:
    """The life of one trainer process."""

    def __init__(self, assignment: announce.Assignment) -> None:
        self._job = assignment.job
        self._lighthouse = assignment.lighthouse
        self._worker = worker = assignment.worker
        self._writer = events.Writer(worker.events, member=worker.name, incarnation=worker.incarnation)
        self._trainer: ReplicaTrainer | None = None
        self._end = threading.Lock()
        self._stop_step: int | None = None
        hello = announce.Trainer(name=worker.name, incarnation=worker.incarnation, pid=os.getpid())
        self._link = announce.Link(worker.controller, lambda: hello, self._told)

    def run(self) -> str:
        process.when_parent_ends(process.kill_self)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, process.ENDING)  # blocked in the worker host, and inherited
        configure_logging(self._worker)
        self._link.start()
        try:
            self._build_and_train()
        except BaseException as error:
            traceback.print_exc()
            summary = f"{type(error).__name__}: {error}".partition("\n")[0]
            self._writer.emit(events.TrainerFailed(error=summary[:500]))
            sys.stderr.flush()
            os._exit(1)
        return self._finish()

    def _build_and_train(self) -> None:
        began = time.monotonic()
        gc.disable()  # nothing to collect in 6 s of imports; TorchTitan collects by hand, at its own steps
        job, worker = self._job, self._worker
        points = self._take_orders()
        if recipes.find(job.recipe).device == "cpu":
            from training import cpu

            cpu.install()
        from training import trainer as trainers

        imported = time.monotonic()
        store = trainers.open_store(worker.host)
        config = recipes.trainer_config(
            job, member=worker.name, host=worker.host, lighthouse=self._lighthouse, scratch=worker.scratch
        )
        self._trainer = trainer = trainers.ReplicaTrainer(config)
        self._writer.emit(
            events.TrainerStarted(
                pid=os.getpid(),
                replica_id=trainer.replica_id,
                recipe=job.recipe,
                device=trainers.device_of(trainer),
                parameters=trainer.parameter_count(),
                boot_s={"import": imported - began, "build": time.monotonic() - imported},
            )
        )
        log.info("ready after %.1f s", time.monotonic() - began)
        if self._stop_step is not None:
            trainer.stop(self._stop_step)
        trainer.run(self._writer, points)
        del store

    def _take_orders(self) -> faultpoints.FaultPoints:
        """Fault points that can be armed from now on. They are not needed for training."""
        points = faultpoints.FaultPoints(self._writer.emit)
        try:
            faultpoints.Server(points, self._worker.scratch)
        except OSError as error:
            log.warning("no orders to fault points are taken: %s", error)
        return points

    def _told(self, message: announce.FromController) -> None:
        """On the link's thread."""
        match message:
            case announce.Ask():
                self._link.send(announce.At(step=self._step()))
            case announce.StopAfter(step=step):
                self._stop_step = step
                if self._trainer is not None:
                    self._trainer.stop(step)
                late = threading.Timer(self._job.settings.stop_grace_s / 2, self._give_up)
                late.daemon = True
                late.start()
            case announce.Exit():
                process.kill_self()

    def _step(self) -> int:
        return 0 if self._trainer is None else self._trainer.manager.current_step()

    def _finish(self) -> str:
        """The end of training. The process stays until its member is ended, but no longer beats to the lighthouse."""
        reason = "steps_reached" if self._step() >= self._job.steps else "stopped"
        self._say_finished(reason)
        if self._trainer is not None:
            self._trainer.manager.shutdown(wait=False)
        return reason

    def _give_up(self) -> None:
        """On a timer: the last step did not end, for want of a quorum perhaps. It stays uncommitted."""
        self._say_finished("stopped")
        os._exit(0)

    def _say_finished(self, reason: str) -> None:
        """Once; whoever comes second waits here for the end of the process."""
        self._end.acquire()
        step = self._step()
        self._writer.emit(events.TrainerFinished(step=step, reason=reason))
        log.info("finished at step %d: %s", step, reason)
        self._link.keep_saying(announce.Finished(reason=reason))


def configure_logging(worker: announce.Worker) -> None:
    """One readable line per thing worth knowing, on stderr; the libraries only when something is wrong."""
    handler = logging.StreamHandler()
    tag = f"{worker.name}#{worker.incarnation}"
    handler.setFormatter(logging.Formatter(f"%(asctime)s {tag} %(name)s: %(message)s", datefmt="%H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.ERROR)
    logging.getLogger("torchft").setLevel(logging.WARNING)
    logging.getLogger("training").setLevel(logging.INFO)
    logging.captureWarnings(True)
    logging.getLogger("py.warnings").setLevel(logging.ERROR)
