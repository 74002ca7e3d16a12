"""The life of one trainer process: it builds a trainer, trains, and tells the controller and its parent how it goes.

It ends with its parent, and ends itself when the trainer fails: there is one way to recover, a new trainer.
A stand-in builds its trainer first and waits until the one before it is dead; nobody hears of it before that.
Not here: who starts such a process, and who follows it (``nursery``, ``actor``).
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

from training import announce, doors, events, faultpoints, process, recipes
from training.nursery import ALIVE, SETTLED

if TYPE_CHECKING:
    from training.trainer import ReplicaTrainer

PATIENCE_S = 2 * doors.KNOCKING_S

log = logging.getLogger(__name__)


class Life:
    """The life of one trainer process."""

    def __init__(self, assignment: announce.Assignment, *, tell: int | None = None, wait: int | None = None) -> None:
        """``tell``: a pipe to the parent, for the signs of life; ``wait``: one on which a stand-in hears its turn."""
        self._job = assignment.job
        self._lighthouse = assignment.lighthouse
        self._worker = worker = assignment.worker
        self._tell = tell
        self._wait = wait
        self._writer: events.Writer | None = None
        self._trainer: ReplicaTrainer | None = None
        self._end = threading.Lock()
        self._stop_step: int | None = None
        self._made_step = 0
        self._place: announce.Place | None = None
        self._may_join = threading.Event()
        self._tries = 0
        hello = announce.Trainer(name=worker.name, incarnation=worker.incarnation, pid=os.getpid())
        self._link = announce.Link(worker.controller, lambda: hello, self._told)

    def run(self) -> str:
        process.when_parent_ends(process.kill_self)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, process.ENDING)  # blocked in the worker host, and inherited
        configure_logging(self._worker)
        try:
            self._build_and_train()
        except BaseException as error:
            traceback.print_exc()
            summary = f"{type(error).__name__}: {error}".partition("\n")[0]
            if self._writer is not None:
                self._writer.emit(events.TrainerFailed(error=summary[:500]))
            sys.stderr.flush()
            os._exit(1)
        return self._finish()

    def _build_and_train(self) -> None:
        gc.disable()  # nothing to collect in 6 s of imports; TorchTitan collects by hand, at its own steps
        if self._wait is None:
            self._appear()
        began = time.monotonic()
        trainer, imported, store = self._build()
        if self._wait is not None:
            trainer.warm_up()
            if not os.read(self._wait, 1):
                process.kill_self()
            self._appear()
            began = imported = time.monotonic()
        elif trainer.device.type == "cuda":
            trainer.warm_up()
        self._trainer = trainer
        assert self._writer is not None
        points = self._take_orders()
        trainer.batches.known, trainer.manager.made_step = self._place, self._made_step
        if self._stop_step is not None:
            trainer.stop(self._stop_step)
        self._need_link()
        self._need_peers()
        gc.freeze()  # or TorchTitan's first collection goes through all that was imported and built, and a step waits
        boot_s = {"import": imported - began, "build": time.monotonic() - imported}
        trainer.run(self._writer, points, started=lambda: self._started(boot_s), tell=self._link.send)
        del store

    def _appear(self) -> None:
        """From now on this is the trainer of its member."""
        worker = self._worker
        self._writer = events.Writer(worker.events, member=worker.name, incarnation=worker.incarnation)
        self._link.start()
        threading.Thread(target=self._beat, name="beats", daemon=True).start()

    def _build(self) -> tuple[ReplicaTrainer, float, object]:
        job, worker = self._job, self._worker
        if recipes.find(job.recipe).device == "cpu":
            from training import cpu

            cpu.install()
        from training import trainer as trainers

        imported = time.monotonic()
        store = trainers.open_store(worker.host)
        config = recipes.trainer_config(
            job,
            member=worker.name,
            host=worker.host,
            heal_host=heal_host(worker, job.settings.heal_over),
            lighthouse=self._lighthouse,
            scratch=worker.scratch,
        )
        return trainers.ReplicaTrainer(config), imported, store

    def _started(self, boot_s: dict[str, float]) -> None:
        trainer = self._trainer
        assert self._writer is not None and trainer is not None
        self._writer.emit(
            events.TrainerStarted(
                pid=os.getpid(),
                replica_id=trainer.replica_id,
                recipe=self._job.recipe,
                device=trainer.device_name(),
                parameters=trainer.parameter_count(),
                boot_s=boot_s,
            )
        )
        log.info("ready after %.1f s", sum(boot_s.values()))

    def _beat(self) -> None:
        """On a thread of its own, for ever: tell parent and controller that Python runs here, and how training goes."""
        while True:
            trainer = self._trainer
            if self._tell is not None:
                os.write(self._tell, SETTLED if trainer is not None and trainer.committed else ALIVE)
            if trainer is not None:
                self._link.send(beat(trainer))
            time.sleep(announce.BEAT_S)

    def _need_link(self) -> None:
        """Begin and end with the data interface: without it a trainer only keeps its peers waiting."""
        loss_s = self._job.settings.link_loss_s
        if loss_s:
            process.wait_for_link(self._worker.data_interface)
            process.when_link_is_lost(self._worker.data_interface, loss_s, process.kill_self)

    def _need_peers(self) -> None:
        """Join once the controller says that the group can be reached, or says nothing: one may train without it."""
        tries = -1
        while self._job.settings.path_check_s and tries < self._tries and not self._may_join.is_set():
            tries = self._tries
            self._may_join.wait(PATIENCE_S)

    def _try(self, asked: announce.Try) -> None:
        """On a thread of its own."""
        reached = doors.reached([door for peer in asked.doors for door in peer])
        self._link.send(announce.Tried(number=asked.number, reached=[reached.issuperset(peer) for peer in asked.doors]))

    def _take_orders(self) -> faultpoints.FaultPoints:
        """Fault points that can be armed from now on. They are not needed for training."""
        assert self._writer is not None
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
            case announce.Lost(replica_id=lost):
                if self._trainer is not None:
                    self._trainer.manager.lose(lost)
            case announce.Try():
                self._tries += 1
                threading.Thread(target=self._try, args=(message,), name="knocks", daemon=True).start()
            case announce.Join():
                self._may_join.set()
            case announce.Place():
                self._place = message
                if self._trainer is not None:
                    self._trainer.batches.known = message
            case announce.Made(step=made):
                self._made_step = made
                if self._trainer is not None:
                    self._trainer.manager.made_step = made
            case announce.Exit(reason=reason):
                log.error("told to end: %s", reason)
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
        assert self._writer is not None
        step = self._step()
        self._writer.emit(events.TrainerFinished(step=step, reason=reason))
        log.info("finished at step %d: %s", step, reason)
        self._link.keep_saying(announce.Finished(reason=reason))


def heal_host(worker: announce.Worker, over: str) -> str:
    """Where peers fetch the state of a replica: at its name, or at the address of its data interface, if it has one."""
    return (process.address_of(worker.data_interface) if over == "data" else None) or worker.host


def beat(trainer: ReplicaTrainer) -> announce.Beat:
    """What a trainer tells of itself."""
    manager = trainer.manager
    waits, for_s = manager.waits.now()
    return announce.Beat(
        replica_id=trainer.replica_id,
        quorum_id=manager._quorum_id,
        waits=waits,
        for_s=for_s,
        step=manager.current_step(),
        step_s=manager.waits.step_s,
    )


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
