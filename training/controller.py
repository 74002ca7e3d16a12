"""The controller: learns of members by their announcements, has Monarch start a trainer in each, sees their ends.

One life of a member is one connection of its worker host (``announce``). Whatever goes wrong in a life - no attach, no
spawn, a dead trainer - the answer is the same: the worker host is told to end, its platform starts the next life, and
that one is attached afresh. So nothing is ever attached twice, which Monarch cannot do, and no wait is without an end:
each is raced against the end of the life it belongs to, and bounded by a setting.

With ``detection=monarch`` connections tell nothing once a trainer is there: its life lasts until Monarch's call to it
fails, and the next life waits for that, as in TorchFT's own example of a Monarch job. Monarch may tell late, or never.

A controller that restarts finds worker hosts that are not ``fresh``: it waits for their trainers to announce themselves
and adopts those, or ends the life. Training goes on without a controller; only new lives wait for one.

Not here: Monarch itself (``hosts``), the training (``trainer``), restarting members (the platform's, or ``launch``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from training import announce, events, hosts, lighthouse
from training.announce import parse_address
from training.lives import Life, Line
from training.paths import Paths
from training.settings import Job
from training.watch import Watch
from training.workload import LIGHTHOUSE_PORT

HELLO_TIMEOUT_S = 5.0
ASK_TIMEOUT_S = 2.0
STOP_MARGIN_STEPS = 2  # that the fastest trainer is ahead of the others, or of our word, at most
ATTACH_BACKOFF_S_MAX = 8.0
VOUCHES_PER_TIMEOUT = 3

log = logging.getLogger(__name__)


class Controller:
    """All lives of a job, and when it is over."""

    def __init__(
        self,
        job: Job,
        *,
        monarch: hosts.Hosts,
        lighthouse_address: str | None,
        vouch: Callable[[list[str]], object],
        emit: Callable[[events.Event], None],
    ) -> None:
        """``vouch`` tells the lighthouse who lives; it may block for a while."""
        self._job = job
        self._monarch = monarch
        self._lighthouse = lighthouse_address
        self._vouch = vouch
        self._by_connection = job.settings.detection == "connection"
        self._succeeded = job.settings.respawn != "pod"
        self._watch = Watch(job.settings.silence_s, job.settings.hang_s)
        self._emit = emit
        self._lives: dict[str, Life] = {}
        self._trainers: dict[tuple[str, int], Line] = {}
        self._pids: dict[tuple[str, int], int] = {}
        self._failures: Counter[str] = Counter()
        self._finished: set[str] = set()
        self._steps: dict[str, int] = {}
        self._last_step: int | None = None
        self._made_step = 0
        self._places: dict[str, announce.Place] = {}
        self._paths = Paths()
        self._news = asyncio.Event()
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ask for the end of the job after the present step."""
        self._stop.set()

    async def run(self, bind: str) -> str:
        """Serve at ``host:port`` until the job is over; gives the reason."""
        host, port = parse_address(bind)
        reason = ""
        try:
            async with asyncio.TaskGroup() as tasks:
                server = await asyncio.start_server(
                    lambda reader, writer: _held(tasks.create_task(self._connection(Line(reader, writer)))),
                    host,
                    port,
                    limit=announce.LINE_BYTES_MAX,
                )
                tasks.create_task(self._look())
                if self._job.settings.silence_s:
                    tasks.create_task(self._vouch_for_the_living())
                if self._job.settings.path_check_s:
                    tasks.create_task(self._check_paths())
                with contextlib.closing(server):
                    self._emit(events.ControllerStarted(replicas=self._job.replicas))
                    log.info("controller at %s, %d replicas expected", bind, self._job.replicas)
                    reason = await self._until_over()
                self._emit(events.ControllerFinished(reason=reason))
                raise JobOver
        except* JobOver:
            log.info("job over: %s", reason)
        return reason

    async def _connection(self, line: Line) -> None:
        """One connection, from hello to end. Nothing a peer sends or does may end the controller."""
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                hello = await line.read()
            if isinstance(hello, announce.Worker):
                await self._worker(Life(hello, line))
            elif isinstance(hello, announce.Trainer):
                await self._trainer(hello, line)
        except (OSError, TimeoutError) as error:
            log.info("connection ended: %s", error or type(error).__name__)
        finally:
            line.close()

    async def _worker(self, life: Life) -> None:
        """A life of a member, to its end."""
        name, incarnation = life.key
        while (before := self._lives.get(name)) is not None and not before.over.done():
            if self._by_connection:
                before.end(f"incarnation {incarnation} announced itself")
            await asyncio.wait({before.over})
        self._lives[name] = life
        if life.key in self._trainers:
            life.trainer_came.set()
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(part(life)) for part in (self._listen, self._begin, self._introduce)]
            reason = await life.over
            for task in work:
                task.cancel()
        if self._lives.get(name) is life:
            del self._lives[name]
        self._emit(events.MemberLost(name=name, member_incarnation=incarnation, reason=reason))
        log.info("%s lost: %s", life.tag, reason)

    async def _listen(self, life: Life) -> None:
        """A worker host says nothing after hello; what matters is the end of its connection."""
        try:
            while await life.line.read() is not None:
                pass
            reason = "worker host ended"
        except OSError as error:
            reason = f"link to worker host cut: {error}"
        if self._by_connection or not life.trainer_came.is_set():
            life.end(reason)

    async def _begin(self, life: Life) -> None:
        """Start or adopt the trainer; when that fails, have the life ended."""
        try:
            await (self._start(life) if life.hello.fresh else self._adopt(life))
        except Exception as error:  # Monarch raises what it likes
            pause_s = self._note_failure(life, f"{type(error).__name__}: {error}".partition("\n")[0][:300])
            if pause_s is not None:
                await asyncio.sleep(pause_s)
                life.dismiss("no trainer could be started here")

    def _note_failure(self, life: Life, error: str) -> float | None:
        """Report a life without a trainer; gives the pause before the next one, in seconds, None when there is none."""
        name, incarnation = life.key
        self._failures[name] += 1
        attempt = self._failures[name]
        given_up = attempt >= self._job.settings.attach_attempts
        pause_s = None if given_up else min(0.25 * 2 ** (attempt - 1), ATTACH_BACKOFF_S_MAX)
        log.warning("%s: no trainer: %s", life.tag, error)
        self._emit(
            events.AttachFailed(
                name=name, member_incarnation=incarnation, attempt=attempt, error=error, retry_in_s=pause_s
            )
        )
        return pause_s

    async def _start(self, life: Life) -> None:
        """Attach, have a trainer started, wait for its announcement."""
        settings, hello = self._job.settings, life.hello
        name, incarnation = life.key
        mesh_name = f"{name.replace('-', '')}i{incarnation}"  # Monarch takes letters and digits only
        began = time.monotonic()
        async with asyncio.timeout(settings.attach_timeout_s):
            host = await self._monarch.attach(hello.monarch, mesh_name)
        attached = time.monotonic()
        address = hello.monarch.rpartition("@")[2]
        self._emit(
            events.MemberAttached(name=name, member_incarnation=incarnation, address=address, attach_s=attached - began)
        )
        assignment = announce.Assignment(job=self._job, worker=hello, lighthouse=self._lighthouse_for(hello))
        training = asyncio.ensure_future(self._monarch.start_trainer(host, mesh_name, assignment))
        training.add_done_callback(lambda call: self._call_ended(life, call))
        await _first(asyncio.shield(training), life.trainer_came.wait(), timeout_s=settings.spawn_timeout_s)
        if not life.trainer_came.is_set():
            failed = training.done() and not training.cancelled() and training.exception()
            raise failed or TimeoutError("the trainer did not announce itself")
        self._failures[name] = 0
        spawn_s = time.monotonic() - attached
        self._emit(events.TrainerSpawned(name=name, member_incarnation=incarnation, spawn_s=spawn_s))

    def _call_ended(self, life: Life, call: asyncio.Future[Any]) -> None:
        """Monarch's word on the end of a trainer; where connections count, its own has told us already, or will."""
        if call.cancelled() or (error := call.exception()) is None:
            return
        said = " ".join(str(error).split())[:300]
        log.info("Monarch: %s", said)
        if not self._by_connection and life.trainer_came.is_set():
            life.dismiss("trainer process ended")
            life.end(f"Monarch: {said}")

    async def _adopt(self, life: Life) -> None:
        """This worker host was known before: its trainer must be there already, Monarch cannot attach again."""
        async with asyncio.timeout(self._job.settings.adopt_timeout_s):
            await life.trainer_came.wait()
        log.info("%s: adopted", life.tag)

    async def _trainer(self, hello: announce.Trainer, line: Line) -> None:
        """The connection of a trainer process, to its end."""
        key = (hello.name, hello.incarnation)
        if self._pids.get(key, hello.pid) != hello.pid:
            self._trainer_ended(key)  # whose connection has not told it yet
        self._trainers[key], self._pids[key] = line, hello.pid
        if (life := self._lives.get(hello.name)) is not None and life.key == key:
            life.trainer_came.set()
        if self._last_step is not None:
            line.send(announce.StopAfter(step=self._last_step))
        async with asyncio.TaskGroup() as tasks:
            admission = tasks.create_task(self._admit(key, line))
            cut = await self._hear_out(key, line)
            admission.cancel()
        if self._trainers.get(key) is not line:
            return  # it has a newer connection
        del self._trainers[key], self._pids[key]
        self._news.set()
        self._trainer_ended(key)
        life = self._lives.get(hello.name)
        if life is None or life.key != key or hello.name in self._finished or not self._by_connection:
            return
        if cut:
            life.end(f"link to trainer cut: {cut}")
        elif not self._succeeded:
            life.dismiss("trainer process ended")

    async def _hear_out(self, key: tuple[str, int], line: Line) -> OSError | None:
        """All that a trainer says, to its end; how its link was cut, if it was."""
        try:
            while (message := await line.read()) is not None:
                self._heard(key, message)
        except OSError as error:
            return error
        return None

    async def _admit(self, key: tuple[str, int], line: Line) -> None:
        """Let a trainer join once it reaches those of the group that its member has reached before."""
        while self._job.settings.path_check_s:
            cut = await self._paths.cut_from(key[0], line, [life for life in self._lives.values() if life.key != key])
            if cut is not None and cut.isdisjoint(name for name, _ in self._watch.present()):
                break
        if self._job.settings.history == "kept":
            if place := self._places.get(key[0]):
                line.send(place)  # before it is told how far to read
            if self._made_step > STOP_MARGIN_STEPS:
                line.send(announce.Made(step=self._made_step - STOP_MARGIN_STEPS))
        line.send(announce.Join())

    async def _introduce(self, life: Life) -> None:
        """Learn who reaches this member, so that it is known when one no longer does."""
        if self._job.settings.path_check_s:
            async with asyncio.TaskGroup() as tasks:
                for key, line in self._trainers.items():
                    if key != life.key:
                        tasks.create_task(self._paths.cut_from(key[0], line, [life]))

    async def _check_paths(self) -> None:
        """Where trainers wait for each other for long, end those who are cut off from the others, for ever.

        Both sides of a cut path are well, say so, and wait. The next trainer there joins when it reaches the group.
        """
        while True:
            await asyncio.sleep(announce.BEAT_S)
            group = self._watch.waiting(self._job.settings.path_check_s)
            members = {
                name: (self._trainers[life.key], life)
                for name, life in self._lives.items()
                if life.key in group and life.key in self._trainers
            }
            apart = await self._paths.apart(members)
            there = self._watch.present() & self._trainers.keys()
            left = {name: life for name, (_, life) in members.items() if life.key in there}
            if len(left.keys() - set(apart)) < self._job.min_replicas:
                continue
            for life in (left[name] for name in apart if name in left):
                log.warning("%s is cut off from peers of its group", life.tag)
                if (replica_id := self._watch.ended(life.key)) is not None:
                    self._tell_lost(life.key, replica_id, "cut_off")
                self._trainers[life.key].send(announce.Exit(reason="cut off from peers"))

    def _trainer_ended(self, key: tuple[str, int]) -> None:
        if (replica_id := self._watch.ended(key)) is not None and self._job.settings.silence_s:
            self._tell_lost(key, replica_id, "ended")

    async def _look(self) -> None:
        """Act on what the beats tell, for ever: nobody waits for the silent, and who keeps others waiting is ended."""
        while True:
            await asyncio.sleep(announce.BEAT_S)
            for key, replica_id in self._watch.silent(time.monotonic()):
                self._tell_lost(key, replica_id, "silent")
            for (name, incarnation), idle_s in self._watch.hung():
                life = self._lives.get(name)
                if life is not None and life.key == (name, incarnation) and name not in self._finished:
                    log.warning("%s is hung: its peers wait, and it did nothing for %.1f s", life.tag, idle_s)
                    life.dismiss(f"trainer hung: nothing done for {idle_s:.1f} s while peers wait")

    async def _vouch_for_the_living(self) -> None:
        """Keep those in the quorum whose heartbeats stop for a moment that is too short to be a silence, for ever.

        The lighthouse need not wait longer for the dead, who are known here at once.
        """
        while True:
            await asyncio.sleep(self._job.settings.heartbeat_timeout_ms / 1000 / VOUCHES_PER_TIMEOUT)
            there = self._watch.alive(time.monotonic())
            living = [replica_id for (name, _), replica_id in there if name not in self._finished]
            await asyncio.to_thread(self._vouch, living)

    def _tell_lost(self, lost: tuple[str, int], replica_id: str, reason: str) -> None:
        """Have the others give up the exchange in which they may wait for it."""
        name, incarnation = lost
        self._emit(events.TrainerLost(name=name, member_incarnation=incarnation, reason=reason))
        for key, line in self._trainers.items():
            if key != lost:
                line.send(announce.Lost(replica_id=replica_id))

    def _heard(self, key: tuple[str, int], message: announce.FromMember) -> None:
        name = key[0]
        if isinstance(message, announce.Beat):
            self._made_step = max(self._made_step, message.step)
            self._watch.heard(key, message, time.monotonic())
            return
        if isinstance(message, announce.Tried):
            self._paths.answered(message)
            return
        if isinstance(message, announce.Place):
            known = self._places.get(name)
            if known is None or message.read > known.read:
                self._places[name] = message
            return
        if isinstance(message, announce.Finished):
            self._finished.add(name)
        elif isinstance(message, announce.At):
            self._steps[name] = message.step
        self._news.set()

    def _lighthouse_for(self, hello: announce.Worker) -> str:
        """Where trainers find the lighthouse; inside the controller it has the controller's name."""
        return f"http://{self._lighthouse or f'{parse_address(hello.controller)[0]}:{LIGHTHOUSE_PORT}'}"

    async def _until_over(self) -> str:
        """Wait for the last step or a stop request; then see the trainers to their ends, for a bounded time."""
        settings = self._job.settings
        while not (self._finished or self._stop.is_set()):
            self._news.clear()
            await _first(self._news.wait(), self._stop.wait())
        if self._stop.is_set():
            await self._ask_to_stop()
            await self._until(lambda: not self._unfinished(), settings.stop_grace_s)
            return "stopped"
        self._end_after(0)
        await self._until(lambda: not self._unfinished(), settings.finish_grace_s)
        return "steps_reached"

    def _unfinished(self) -> dict[str, Line]:
        """Connections of the trainers that have not finished, by member."""
        return {name: line for (name, _), line in self._trainers.items() if name not in self._finished}

    async def _until(self, reached: Callable[[], bool], timeout_s: float) -> None:
        """Wait for something that members tell, or go on without."""
        try:
            async with asyncio.timeout(timeout_s):
                while not reached():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            log.warning("after %.0f s still not heard from: %s", timeout_s, ", ".join(sorted(self._unfinished())))

    async def _ask_to_stop(self) -> None:
        """Let all trainers end after the same update, so that none waits for a peer that is gone."""
        lines = self._unfinished()
        self._steps.clear()
        for line in lines.values():
            line.send(announce.Ask())
        await self._until(lambda: lines.keys() <= self._steps.keys() | self._finished, ASK_TIMEOUT_S)
        self._end_after(max(self._steps.values(), default=0) + STOP_MARGIN_STEPS)

    def _end_after(self, step: int) -> None:
        """No trainer, now or later, may commit an update beyond ``step``.

        Once one has made all steps that is 0 for the rest: they had the time of its farewell to make the last one too;
        later, without it to heal from, they would train a history of their own, from the start if they are new.
        """
        self._last_step = step
        for line in self._unfinished().values():
            line.send(announce.StopAfter(step=step))


class JobOver(Exception):
    """Leaves the controller's task group, cancelling what still runs there."""


async def _first(*waits: Awaitable[Any], timeout_s: float | None = None) -> None:
    """Wait until the first of these is done, or for ``timeout_s``; coroutines that are not done are given up."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            if not task.cancel() and not task.cancelled():
                task.exception()  # seen; the caller judges by what it waited for


def _held(_: asyncio.Task[None]) -> None:
    """A connection's task, which the task group holds."""


def main(*, name: str, incarnation: int, bind: str, lighthouse_address: str | None, events_path: str, job: Job) -> None:
    """Run the job to its end and exit 0; Monarch's own threads are not waited for."""
    writer = events.Writer(events_path, member=name, incarnation=incarnation)
    host = parse_address(bind)[0]
    beside = None
    if lighthouse_address is None:
        beside = lighthouse.start(f"{host}:{LIGHTHOUSE_PORT}", job.min_replicas, job.settings)
    address = lighthouse_address or f"{host}:{LIGHTHOUSE_PORT}"
    voucher = lighthouse.Voucher(f"http://{address}", job.settings)

    async def whole() -> None:
        monarch = hosts.MonarchHosts(host)
        controller = Controller(
            job, monarch=monarch, lighthouse_address=lighthouse_address, vouch=voucher.vouch, emit=writer.emit
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, controller.stop)
        await controller.run(bind)

    asyncio.run(whole())
    del beside
    logging.shutdown()
    os._exit(0)
