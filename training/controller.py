"""The controller: learns of members by their announcements, has Monarch start a trainer in each, sees their ends.

One life of a member is one connection of its worker host (``announce``). Whatever goes wrong in a life - no attach, no
spawn, a dead trainer - the answer is the same: the worker host is told to end, its platform starts the next life, and
that one is attached afresh. So nothing is ever attached twice, which Monarch cannot do, and no wait is without an end:
each is raced against the end of the life it belongs to, and bounded by a setting.

A controller that restarts finds worker hosts that are not ``fresh``: it waits for their trainers to announce themselves
and adopts those, or ends the life. Training goes on without a controller; only new lives wait for one.

Not here: Monarch itself (``hosts``), the training (``trainer``), restarting members (the platform's, or ``launch``).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from training import announce, events, hosts, lighthouse
from training.actor import Assignment
from training.announce import parse_address
from training.settings import Job

LIGHTHOUSE_PORT = 29510
HELLO_TIMEOUT_S = 5.0
ASK_TIMEOUT_S = 2.0
ATTACH_BACKOFF_S_MAX = 8.0

log = logging.getLogger(__name__)


class Line:
    """One connection of a member, seen from here."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        announce.keep_alive(writer.get_extra_info("socket"))

    async def read(self) -> announce.FromMember | None:
        """The next message; None at the peer's orderly or sudden end. OSError when the link is cut."""
        try:
            line = await self._reader.readuntil(b"\n")
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None
        return announce.from_member(line)

    def send(self, message: announce.Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(announce.encode(message))

    def close(self) -> None:
        self._writer.close()


class Life:
    """One life of a member: its worker host, then its trainer too."""

    def __init__(self, hello: announce.Worker, line: Line) -> None:
        self.hello = hello
        self.line = line
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.trainer: Line | None = None
        self.trainer_came = asyncio.Event()
        self.step: asyncio.Future[int] | None = None

    def end(self, reason: str) -> None:
        """The first reason counts."""
        if not self.over.done():
            self.over.set_result(reason)

    def dismiss(self, reason: str) -> None:
        """Have the worker host end; its connection's end will be the end of this life."""
        self.line.send(announce.Exit(reason=reason))


class Controller:
    """All lives of a job, and when it is over."""

    def __init__(self, job: Job, *, lighthouse_address: str | None, emit: Any) -> None:
        self._job = job
        self._lighthouse = lighthouse_address
        self._emit = emit
        self._lives: dict[str, Life] = {}
        self._early_trainers: dict[tuple[str, int], Line] = {}
        self._failures: Counter[str] = Counter()
        self._finished: dict[str, str] = {}
        self._progress = asyncio.Event()
        self._stop = asyncio.Event()

    async def run(self, bind: str) -> str:
        """Serve at ``host:port`` until the job is over; gives the reason."""
        host, port = parse_address(bind)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        async with asyncio.TaskGroup() as tasks:
            server = await asyncio.start_server(
                lambda reader, writer: _own(tasks.create_task(self._connection(Line(reader, writer)))),
                host,
                port,
                limit=announce.LINE_BYTES_MAX,
            )
            self._emit(events.ControllerStarted(replicas=self._job.replicas))
            log.info("controller at %s, %d replicas expected", bind, self._job.replicas)
            reason = await self._until_over()
            self._emit(events.ControllerFinished(reason=reason))
            server.close()
            raise_job_over(reason)
        raise AssertionError("a task group left without the end of the job")

    async def _connection(self, line: Line) -> None:
        """One connection, from hello to end. Nothing a peer sends or does may end the controller."""
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                hello = await line.read()
            if isinstance(hello, announce.Worker):
                await self._worker(hello, line)
            elif isinstance(hello, announce.Trainer):
                await self._trainer(hello, line)
        except (OSError, TimeoutError, msgspec.DecodeError, asyncio.LimitOverrunError) as error:
            log.info("connection ended: %s", error or type(error).__name__)
        finally:
            line.close()

    async def _worker(self, hello: announce.Worker, line: Line) -> None:
        """A life of a member, to its end."""
        name, incarnation = hello.name, hello.incarnation
        if (before := self._lives.get(name)) is not None:
            before.end(f"incarnation {incarnation} announced itself")
        life = self._lives[name] = Life(hello, line)
        if (early := self._early_trainers.pop((name, incarnation), None)) is not None:
            life.trainer = early
            life.trainer_came.set()
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(self._listen(life)), tasks.create_task(self._begin(life))]
            reason = await life.over
            for task in work:
                task.cancel()
        if self._lives.get(name) is life:
            del self._lives[name]
        self._emit(events.MemberLost(name=name, member_incarnation=incarnation, reason=reason))
        log.info("%s#%d lost: %s", name, incarnation, reason)

    async def _listen(self, life: Life) -> None:
        """A worker host says nothing after hello; what matters is the end of its connection."""
        try:
            while await life.line.read() is not None:
                pass
            life.end("worker host ended")
        except OSError as error:
            life.end(f"link to worker host cut: {error}")

    async def _begin(self, life: Life) -> None:
        """Start or adopt the trainer; when that fails, end the life."""
        name, incarnation = life.hello.name, life.hello.incarnation
        try:
            await (self._start(life) if life.hello.fresh else self._adopt(life))
        except Exception as error:  # Monarch raises what it likes
            self._failures[name] += 1
            attempt = self._failures[name]
            given_up = attempt >= self._job.settings.attach_attempts
            pause_s = min(0.25 * 2 ** (attempt - 1), ATTACH_BACKOFF_S_MAX)
            summary = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
            log.warning("%s#%d: no trainer: %s", name, incarnation, summary)
            self._emit(
                events.AttachFailed(
                    name=name,
                    member_incarnation=incarnation,
                    attempt=attempt,
                    error=summary,
                    retry_in_s=None if given_up else pause_s,
                )
            )
            if not given_up:
                await asyncio.sleep(pause_s)
                life.dismiss(f"no trainer: {summary}")

    async def _start(self, life: Life) -> None:
        settings, hello = self._job.settings, life.hello
        mesh_name = f"{hello.name.replace('-', '')}i{hello.incarnation}"
        began = time.monotonic()
        async with asyncio.timeout(settings.attach_timeout_s):
            mesh = await hosts.attach(hello.monarch, mesh_name)
        attached = time.monotonic()
        self._emit(
            events.MemberAttached(
                name=hello.name,
                member_incarnation=hello.incarnation,
                address=hello.monarch.rpartition("@")[2],
                attach_s=attached - began,
            )
        )
        assignment = Assignment(job=self._job, worker=hello, lighthouse=self._lighthouse_for(hello))
        training = asyncio.ensure_future(hosts.start_trainer(mesh, mesh_name, assignment))
        came = asyncio.ensure_future(life.trainer_came.wait())
        await asyncio.wait({training, came}, timeout=settings.spawn_timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not came.done():
            came.cancel()
            raise (training.done() and training.exception()) or TimeoutError("the trainer did not announce itself")
        spawned = events.TrainerSpawned(
            name=hello.name, member_incarnation=hello.incarnation, spawn_s=time.monotonic() - attached
        )
        self._emit(spawned)
        self._failures[hello.name] = 0
        training.add_done_callback(_note_end)

    async def _adopt(self, life: Life) -> None:
        async with asyncio.timeout(self._job.settings.adopt_timeout_s):
            await life.trainer_came.wait()
        log.info("%s#%d: adopted", life.hello.name, life.hello.incarnation)

    async def _trainer(self, hello: announce.Trainer, line: Line) -> None:
        """The connection of a trainer process."""
        life = self._lives.get(hello.name)
        if life is None or life.hello.incarnation != hello.incarnation:
            self._early_trainers[hello.name, hello.incarnation] = line
        else:
            life.trainer = line
            life.trainer_came.set()
        cut = False
        try:
            while (message := await line.read()) is not None:
                self._heard(hello, message)
        except OSError:
            cut = True
        self._early_trainers.pop((hello.name, hello.incarnation), None)
        life = self._lives.get(hello.name)
        if life is None or life.trainer is not line or hello.name in self._finished:
            return
        if cut:
            life.end("link to trainer cut")
        else:
            log.info("%s#%d: trainer process ended", hello.name, hello.incarnation)
            life.dismiss("trainer process ended")

    def _heard(self, hello: announce.Trainer, message: announce.FromMember) -> None:
        life = self._lives.get(hello.name)
        if isinstance(message, announce.Finished):
            self._finished[hello.name] = message.reason
            self._progress.set()
        elif isinstance(message, announce.At) and life is not None and life.step and not life.step.done():
            life.step.set_result(message.step)

    def _lighthouse_for(self, hello: announce.Worker) -> str:
        if self._lighthouse is not None:
            return f"http://{self._lighthouse}"
        return f"http://{parse_address(hello.controller)[0]}:{LIGHTHOUSE_PORT}"

    async def _until_over(self) -> str:
        """Wait for the last step or a stop request; then see the trainers to their ends, for a bounded time."""
        first = [asyncio.ensure_future(self._progress.wait()), asyncio.ensure_future(self._stop.wait())]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        for waiting in first:
            waiting.cancel()
        settings = self._job.settings
        if self._stop.is_set():
            await self._ask_to_stop()
            await self._all_finished(settings.stop_grace_s)
            return "stopped"
        await self._all_finished(settings.finish_grace_s)
        return "steps_reached"

    async def _all_finished(self, grace_s: float) -> None:
        try:
            async with asyncio.timeout(grace_s):
                while self._trainers():
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            log.warning("not finished after %.0f s: %s", grace_s, ", ".join(sorted(self._trainers())))

    def _trainers(self) -> dict[str, Life]:
        """Lives with a trainer that has not finished."""
        return {n: life for n, life in self._lives.items() if life.trainer and n not in self._finished}

    async def _ask_to_stop(self) -> None:
        """Let all trainers end after the same update, so that none waits for a peer that is gone."""
        lives = list(self._trainers().values())
        for life in lives:
            life.step = asyncio.get_running_loop().create_future()
            assert life.trainer is not None
            life.trainer.send(announce.Ask())
        answers = [life.step for life in lives if life.step is not None]
        if answers:
            await asyncio.wait(answers, timeout=ASK_TIMEOUT_S)
        last = max((answer.result() for answer in answers if answer.done()), default=0) + 2
        log.info("stop after step %d", last)
        for life in lives:
            if life.trainer is not None:
                life.trainer.send(announce.StopAfter(step=last))


class JobOver(Exception):
    """Leaves the controller's task group, cancelling what still runs there."""


def raise_job_over(reason: str) -> None:
    raise JobOver(reason)


def _note_end(training: asyncio.Future[Any]) -> None:
    """Monarch's word on the end of a trainer; its connection has told us already, or will."""
    if not training.cancelled() and (error := training.exception()) is not None:
        log.info("Monarch: %s", str(error).strip().partition("\n")[0][:300])


def _own(task: asyncio.Task[None]) -> None:
    """The task group holds it."""


def main(
    *, name: str, incarnation: int, bind: str, lighthouse_address: str | None, events_path: str, job: Job
) -> None:
    """Run the job to its end and exit 0; Monarch's own threads are not waited for."""
    writer = events.Writer(Path(events_path), member=name, incarnation=incarnation)
    host = parse_address(bind)[0]
    beside = None
    if lighthouse_address is None:
        beside = lighthouse.start(f"{host}:{LIGHTHOUSE_PORT}", job.min_replicas, job.settings)
    hosts.open_transport(host)
    try:
        asyncio.run(Controller(job, lighthouse_address=lighthouse_address, emit=writer.emit).run(bind))
    except* JobOver as over:
        log.info("job over: %s", over.exceptions[0])
    del beside
    logging.shutdown()
    os._exit(0)
