"""The controller against members that live and die over real connections; only Monarch is a stand-in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from training import announce, events
from training.controller import Controller
from training.process import free_port
from training.settings import Job, Settings

TIMEOUT_S = 10.0
SETTINGS = Settings(
    attach_timeout_s=0.5,
    spawn_timeout_s=0.5,
    adopt_timeout_s=0.3,
    finish_grace_s=0.3,
    stop_grace_s=0.5,
    attach_attempts=2,
    path_check_s=0.0,
)


class StandIn:
    """Monarch as the controller sees it: attaching and starting can succeed, fail or never end."""

    def __init__(self) -> None:
        self.attached: list[str] = []
        self.started: list[announce.Assignment] = []
        self.calls: list[asyncio.Future[str]] = []
        self.attach_error: Exception | None = None
        self.start_error: Exception | None = None
        self.hang = False

    async def attach(self, address: str, name: str) -> str:
        self.attached.append(address)
        if self.hang:
            await asyncio.Event().wait()
        if self.attach_error is not None:
            raise self.attach_error
        return address

    def start_trainer(self, host: Any, name: str, assignment: announce.Assignment) -> Awaitable[Any]:
        self.started.append(assignment)
        training: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.calls.append(training)
        if self.start_error is not None:
            training.set_exception(self.start_error)
        return training


class Peer:
    """A member's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def say(self, message: announce.Message) -> None:
        self._writer.write(announce.encode(message))

    def say_raw(self, line: bytes) -> None:
        self._writer.write(line)

    async def hear_all(self) -> announce.FromController | None:
        try:
            line = await self._reader.readline()
        except ConnectionResetError:
            return None
        return msgspec.json.decode(line, type=announce.FromController) if line else None

    async def hear(self) -> announce.FromController | None:
        """The next thing that is said, but for the leave to join."""
        said = await self.hear_all()
        return await self.hear() if isinstance(said, announce.Join) else said

    def die(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class RunningJob:
    """A running controller and what it reported."""

    def __init__(self, job: Job) -> None:
        self.monarch = StandIn()
        self.seen: list[events.Event] = []
        self.vouched: list[tuple[str, ...]] = []
        self._news = asyncio.Event()
        self._peers: list[Peer] = []
        self._address = ("127.0.0.1", free_port("127.0.0.1"))
        self.controller = Controller(
            job, monarch=self.monarch, lighthouse_address="lh:1", vouch=self._vouch, emit=self._emit
        )
        self.over = asyncio.ensure_future(self.controller.run(f"{self._address[0]}:{self._address[1]}"))

    def _emit(self, event: events.Event) -> None:
        self.seen.append(event)
        self._news.set()

    def _vouch(self, replica_ids: list[str]) -> None:
        """On another thread."""
        self.vouched.append(tuple(sorted(replica_ids)))

    async def vouches(self, *replica_ids: str) -> None:
        """Until the controller says again that these live, and no others."""
        said = len(self.vouched)
        while replica_ids not in self.vouched[said:]:
            await asyncio.sleep(0.01)

    async def until(self, kind: type[events.Event], count: int = 1) -> Any:
        """The ``count``-th event of a kind, as soon as it is there."""
        while len(found := [event for event in self.seen if isinstance(event, kind)]) < count:
            self._news.clear()
            await self._news.wait()
        return found[count - 1]

    async def connect(self, hello: announce.Message | None = None) -> Peer:
        peer = Peer(*await asyncio.open_connection(*self._address))
        self._peers.append(peer)
        if hello is not None:
            peer.say(hello)
        return peer

    async def close(self) -> None:
        self.over.cancel()
        await asyncio.wait({self.over})
        for peer in self._peers:
            await peer.close()

    async def worker(self, name: str = "replica-0", incarnation: int = 1, fresh: bool = True) -> Peer:
        return await self.connect(
            announce.Worker(
                name=name, incarnation=incarnation, fresh=fresh, monarch=f"id@tcp://{name}:{incarnation}", host=name,
                data_interface="lo", doors=[f"{name}:{incarnation}"], events="e", scratch="s",
                controller="controller:29400",
            )
        )  # fmt: skip

    async def trainer(self, name: str = "replica-0", incarnation: int = 1, pid: int = 7) -> Peer:
        return await self.connect(announce.Trainer(name=name, incarnation=incarnation, pid=pid))

    async def member(self, name: str = "replica-0", incarnation: int = 1) -> tuple[Peer, Peer]:
        """A worker host and its trainer, both known to the controller."""
        before = sum(isinstance(event, events.TrainerSpawned) for event in self.seen)
        peers = await self.worker(name, incarnation), await self.trainer(name, incarnation)
        await self.until(events.TrainerSpawned, before + 1)
        return peers


@asynccontextmanager
async def running(replicas: int = 1, settings: Settings = SETTINGS, min_replicas: int = 1) -> AsyncIterator[RunningJob]:
    job = RunningJob(Job(recipe="cpu-debug", replicas=replicas, min_replicas=min_replicas, steps=9, settings=settings))
    await job.until(events.ControllerStarted)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield job
    finally:
        await job.close()


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@in_loop
async def test_a_member_is_attached_and_its_trainer_started() -> None:
    async with running() as job:
        await job.member()
        attached, spawned = await job.until(events.MemberAttached), await job.until(events.TrainerSpawned)
        assert (attached.name, attached.member_incarnation, attached.address) == ("replica-0", 1, "tcp://replica-0:1")
        assert (spawned.name, spawned.member_incarnation) == ("replica-0", 1)
        (assignment,) = job.monarch.started
        assert assignment.lighthouse == "http://lh:1"
        assert assignment.worker.scratch == "s"


@in_loop
async def test_a_dead_worker_host_is_lost_at_once_and_its_next_life_attached() -> None:
    async with running() as job:
        worker, trainer = await job.member()
        worker.die()
        trainer.die()
        assert (await job.until(events.MemberLost)).reason == "worker host ended"
        await job.member(incarnation=2)
        assert (await job.until(events.TrainerSpawned, 2)).member_incarnation == 2


BY_POD = msgspec.structs.replace(SETTINGS, respawn="pod")


@in_loop
async def test_a_dead_trainer_that_nobody_follows_ends_its_worker_host() -> None:
    async with running(settings=BY_POD) as job:
        worker, trainer = await job.member()
        trainer.die()
        assert await worker.hear() == announce.Exit(reason="trainer process ended")


@in_loop
async def test_a_member_that_dies_during_attach_is_let_go() -> None:
    async with running() as job:
        job.monarch.hang = True
        worker = await job.worker()
        while not job.monarch.attached:
            await asyncio.sleep(0)
        worker.die()
        await job.until(events.MemberLost)
        assert not any(isinstance(event, events.AttachFailed) for event in job.seen)
        job.monarch.hang = False
        await job.member(incarnation=2)


@in_loop
async def test_several_dead_at_once_and_a_new_life_before_the_old_was_noticed() -> None:
    async with running(replicas=3) as job:
        names = ["replica-0", "replica-1", "replica-2"]
        members = [await job.member(name) for name in names]
        for worker, trainer in members[:2]:
            worker.die()
            trainer.die()
        await job.member("replica-2", incarnation=2)  # the first life of replica-2 is still connected
        await job.until(events.MemberLost, 3)
        lost = {event.name: event.reason for event in job.seen if isinstance(event, events.MemberLost)}
        assert lost["replica-2"] == "incarnation 2 announced itself"
        assert set(lost) == set(names)


@pytest.mark.parametrize("trouble", ["attach hangs", "attach fails", "start fails", "trainer silent"])
def test_a_life_without_a_trainer_is_ended_then_given_up(trouble: str) -> None:
    async def body() -> None:
        async with running() as job:
            job.monarch.hang = trouble == "attach hangs"
            job.monarch.attach_error = RuntimeError("no route\nmore") if trouble == "attach fails" else None
            job.monarch.start_error = RuntimeError("exec failed") if trouble == "start fails" else None
            worker = await job.worker()
            failed = await job.until(events.AttachFailed)
            assert (failed.attempt, failed.retry_in_s) == (1, 0.25)
            assert "\n" not in failed.error
            assert isinstance(await worker.hear(), announce.Exit)
            worker.die()
            await job.worker(incarnation=2)
            failed = await job.until(events.AttachFailed, 2)
            assert (failed.attempt, failed.retry_in_s) == (2, None)

    asyncio.run(body())


@in_loop
async def test_a_restarted_controller_adopts_live_trainers() -> None:
    async with running() as job:
        trainer = await job.trainer()
        worker = await job.worker(fresh=False)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(worker.hear(), SETTINGS.adopt_timeout_s * 2)
        trainer.say(announce.Finished(reason="steps_reached"))
        assert await job.over == "steps_reached"
        assert job.monarch.attached == []


@in_loop
async def test_a_known_worker_host_without_trainer_is_ended_not_attached() -> None:
    async with running() as job:
        worker = await job.worker(fresh=False)
        assert isinstance(await worker.hear(), announce.Exit)
        assert job.monarch.attached == []


@in_loop
async def test_a_worker_host_that_reconnects_keeps_its_trainer() -> None:
    async with running(settings=BY_POD) as job:
        worker, trainer = await job.member()
        worker.die()
        await job.until(events.MemberLost)
        worker = await job.worker(fresh=False)
        trainer.die()
        assert await worker.hear() == announce.Exit(reason="trainer process ended")


def beat(replica_id: str, waits: bool = True, for_s: float = 0.0) -> announce.Beat:
    return announce.Beat(replica_id=replica_id, quorum_id=1, waits=waits, for_s=for_s, step=4, step_s=0.1)


@in_loop
async def test_a_dead_trainer_is_told_to_its_peers_and_its_member_lives_on() -> None:
    async with running(replicas=2) as job:
        (worker, trainer), (_, peer) = await job.member("replica-0"), await job.member("replica-1")
        trainer.say(beat("replica-0:a"))
        await trainer.close()
        assert await peer.hear() == announce.Lost(replica_id="replica-0:a")
        lost = await job.until(events.TrainerLost)
        assert (lost.name, lost.member_incarnation, lost.reason) == ("replica-0", 1, "ended")
        follower = await job.trainer("replica-0")
        follower.say(beat("replica-0:b"))
        await follower.close()
        assert await peer.hear() == announce.Lost(replica_id="replica-0:b")
        for last in (await job.trainer("replica-0"), peer):
            last.say(announce.Finished(reason="steps_reached"))
        assert await worker.hear() is None, "the end of the job, and no word before it"
        assert not any(isinstance(event, events.MemberLost) for event in job.seen)


@in_loop
async def test_a_trainer_whose_follower_is_heard_of_before_its_end_is_lost_and_one_that_came_anew_is_not() -> None:
    async with running(replicas=2, settings=msgspec.structs.replace(SETTINGS, silence_s=20.0)) as job:
        (_, trainer), (_, peer) = await job.member("replica-0"), await job.member("replica-1")
        trainer.say(beat("replica-0:a"))
        peer.say(beat("replica-1:a"))
        await job.vouches("replica-0:a", "replica-1:a")
        for pid, living in ((7, ["replica-0:a", "replica-1:a"]), (8, ["replica-1:a"])):
            await job.trainer("replica-0", pid=pid)
            peer.say(beat("replica-1:a"))
            await job.vouches(*living)
        assert await peer.hear() == announce.Lost(replica_id="replica-0:a")
        assert [event.reason for event in job.seen if isinstance(event, events.TrainerLost)] == ["ended"]


@in_loop
async def test_a_new_trainer_is_told_how_far_the_job_is_unless_history_may_begin_again() -> None:
    for history in ("kept", "restart"):
        async with running(settings=msgspec.structs.replace(SETTINGS, history=history)) as job:
            _, trainer = await job.member()
            trainer.say(beat("replica-0:a"))
            await trainer.close()
            follower = await job.trainer()
            follower.say(announce.Finished(reason="steps_reached"))
            told = announce.Made(step=2) if history == "kept" else None  # none is more than two updates ahead
            assert await follower.hear() == told


@in_loop
async def test_a_new_trainer_is_told_how_to_go_on_reading_unless_history_may_begin_again() -> None:
    for history in ("kept", "restart"):
        async with running(settings=msgspec.structs.replace(SETTINGS, history=history)) as job:
            _, trainer = await job.member()
            for read in (1, 700, 2):  # the last as by one that has just come back
                trainer.say(announce.Place(read=read, state=b"%d" % read))
            await trainer.close()
            follower = await job.trainer()
            follower.say(announce.Finished(reason="steps_reached"))
            told = announce.Place(read=700, state=b"700") if history == "kept" else None
            assert await follower.hear() == told


@in_loop
async def test_the_lighthouse_is_told_who_lives_until_it_ends_finishes_or_is_silent() -> None:
    async with running(replicas=3, settings=msgspec.structs.replace(SETTINGS, silence_s=0.5)) as job:
        dying, finishing, silent = [(await job.member(f"replica-{rank}"))[1] for rank in range(3)]
        for trainer, replica_id in ((dying, "a"), (finishing, "b")):
            trainer.say(beat(replica_id))
        await job.vouches("a", "b")
        silent.say(beat("c", for_s=0.6))
        await dying.close()
        await job.vouches("b")
        finishing.say(beat("b"))
        silent.say(beat("c"))
        await job.vouches("b", "c")
        await job.vouches()
        finishing.say(announce.Finished(reason="steps_reached"))
        finishing.say(beat("b"))
        silent.say(beat("c"))
        await job.vouches("c")


@in_loop
async def test_a_silent_trainer_is_told_to_its_peers_and_the_member_of_a_hung_one_is_ended() -> None:
    async with running(replicas=2, settings=msgspec.structs.replace(SETTINGS, silence_s=0.5, hang_s=2.0)) as job:
        (worker, hung), (_, peer) = await job.member("replica-0"), await job.member("replica-1")
        hung.say(beat("replica-0:a", waits=False, for_s=3.0))
        peer.say(beat("replica-1:a", for_s=3.0))
        said = await worker.hear()
        assert isinstance(said, announce.Exit) and "3.0 s" in said.reason
        assert {await hung.hear(), await peer.hear()} == {
            announce.Lost(replica_id="replica-1:a"), announce.Lost(replica_id="replica-0:a")
        }  # fmt: skip
        await job.until(events.TrainerLost, 2)
        told = {(event.name, event.reason) for event in job.seen if isinstance(event, events.TrainerLost)}
        assert told == {("replica-0", "silent"), ("replica-1", "silent")}


CHECKING = msgspec.structs.replace(SETTINGS, path_check_s=0.2, silence_s=20.0)


class Network:
    """Members whose trainers try what they are asked to try, and say that they wait while a way between them is cut."""

    def __init__(self, job: RunningJob) -> None:
        self.job = job
        self.cut: set[frozenset[str]] = set()
        self.told: dict[str, list[announce.FromController]] = {}
        self.rounds = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def member(self, name: str) -> None:
        _, trainer = await self.job.member(name)
        self.live(name, trainer)

    def live(self, name: str, trainer: Peer, quorum_id: int = 1) -> None:
        self.told[name] = []
        self._tasks += [
            asyncio.ensure_future(self._answer(name, trainer)),
            asyncio.ensure_future(self._beat(name, trainer, quorum_id)),
        ]

    async def _answer(self, name: str, trainer: Peer) -> None:
        while (said := await trainer.hear_all()) is not None:
            self.told[name].append(said)
            if isinstance(said, announce.Try):
                reached = [frozenset((name, door.partition(":")[0])) not in self.cut for (door,) in said.doors]
                trainer.say(announce.Tried(number=said.number, reached=reached))
                self.rounds += not all(reached)
            elif isinstance(said, announce.Exit):
                await trainer.close()

    async def _beat(self, name: str, trainer: Peer, quorum_id: int) -> None:
        while not self.has_heard(name, announce.Exit):
            waits_s = 1.0 if self.cut else 0.0
            trainer.say(msgspec.structs.replace(beat(f"{name}:a", for_s=waits_s), quorum_id=quorum_id))
            await asyncio.sleep(0.05)

    def has_heard(self, name: str, kind: type[announce.Message]) -> bool:
        return any(isinstance(said, kind) for said in self.told[name])

    async def hears(self, name: str, kind: type[announce.Message]) -> None:
        while not self.has_heard(name, kind):
            await asyncio.sleep(0.01)

    async def is_tried(self, times: int) -> None:
        """Until so many trainers more have found a way cut."""
        until = self.rounds + times
        while self.rounds < until:
            await asyncio.sleep(0.01)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def network(*names: str, cut: tuple[str, ...] = (), min_replicas: int = 1) -> AsyncIterator[Network]:
    async with running(len(names), CHECKING, min_replicas) as job:
        network = Network(job)
        network.cut = ways(*cut)
        try:
            for name in names:
                await network.member(name)
                await network.hears(name, announce.Join)
            yield network
        finally:
            network.close()


def ways(*between: str) -> set[frozenset[str]]:
    """`0-2` is the way from replica-0 to replica-2."""
    return {frozenset(f"replica-{number}" for number in way.split("-")) for way in between}


THREE = ("replica-0", "replica-1", "replica-2")


@in_loop
async def test_who_is_cut_off_from_most_is_ended_and_the_next_one_joins_when_it_reaches_the_group() -> None:
    async with network(*THREE, min_replicas=2) as there:
        there.cut = ways("0-1", "1-2")
        await there.hears("replica-1", announce.Exit)
        lost = await there.job.until(events.TrainerLost)
        assert (lost.name, lost.reason) == ("replica-1", "cut_off")
        for name in ("replica-0", "replica-2"):
            await there.hears(name, announce.Lost)
            assert not there.has_heard(name, announce.Exit)
        there.live("replica-1", await there.job.trainer("replica-1", pid=8), quorum_id=-1)
        await there.is_tried(3)
        assert not there.has_heard("replica-1", announce.Join)
        there.cut = ways("1-2")
        await there.is_tried(3)
        assert not there.has_heard("replica-1", announce.Join), "it must reach all of them"
        there.cut = ways()
        await there.hears("replica-1", announce.Join)
        assert [event.name for event in there.job.seen if isinstance(event, events.TrainerLost)] == ["replica-1"]


@in_loop
async def test_one_that_is_too_busy_to_try_joins_when_it_has_tried() -> None:
    async with network(*THREE[:2]) as there:
        there.cut = ways("0-1")
        await there.job.until(events.TrainerLost)
        follower = await there.job.trainer("replica-1", pid=8)
        for _ in range(2):
            assert isinstance(await follower.hear_all(), announce.Try), "unanswered, it is asked again"
        there.live("replica-1", follower, quorum_id=-1)
        there.cut = ways()
        await there.hears("replica-1", announce.Join)


@in_loop
async def test_of_two_sides_one_is_left_that_is_whole() -> None:
    async with network(*THREE, "replica-3", min_replicas=2) as there:
        there.cut = ways("0-2", "0-3", "1-2", "1-3")
        await there.job.until(events.TrainerLost, 2)
        lost = {event.name for event in there.job.seen if isinstance(event, events.TrainerLost)}
        assert lost in ({"replica-0", "replica-1"}, {"replica-2", "replica-3"})


@pytest.mark.parametrize("why", ["too few would be left", "the way never was open"])
def test_nobody_is_ended_over_a_cut_way_when(why: str) -> None:
    async def body() -> None:
        always = ("0-1", "1-2") if why == "the way never was open" else ()
        async with network(*THREE, cut=always, min_replicas=1 if always else 3) as there:
            there.cut = ways("0-1", "1-2")
            await there.is_tried(9)
            assert not any(there.has_heard(name, announce.Exit) for name in THREE)

    asyncio.run(body())


@in_loop
async def test_a_controller_that_was_started_again_learns_from_those_it_finds_which_ways_are_open() -> None:
    async with running(2, CHECKING) as job:
        there = Network(job)
        for name in THREE[:2]:
            there.live(name, await job.trainer(name))
            await there.hears(name, announce.Join)
        for name in THREE[:2]:
            await job.worker(name, fresh=False)
        await there.hears("replica-1", announce.Try)
        while not any(isinstance(said, announce.Try) and said.doors for said in there.told["replica-0"]):
            await asyncio.sleep(0.01)
        there.cut = ways("0-1")
        lost = await job.until(events.TrainerLost)
        assert lost.reason == "cut_off"
        there.close()


BY_MONARCH = msgspec.structs.replace(SETTINGS, detection="monarch", respawn="pod")


@in_loop
async def test_detection_by_monarch_holds_a_new_life_back_until_the_call_of_the_old_one_fails() -> None:
    async with running(settings=BY_MONARCH) as job:
        worker, trainer = await job.member()
        worker.die()
        trainer.die()
        await job.worker(incarnation=2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(job.until(events.MemberLost), SETTINGS.adopt_timeout_s)
        assert len(job.monarch.attached) == 1
        job.monarch.calls[0].set_exception(RuntimeError("supervision:\n  gone"))
        assert (await job.until(events.MemberLost)).reason == "Monarch: supervision: gone"
        await job.trainer(incarnation=2)
        assert (await job.until(events.TrainerSpawned, 2)).member_incarnation == 2


@in_loop
async def test_detection_by_monarch_ends_a_worker_host_whose_trainer_is_dead_when_the_call_fails() -> None:
    async with running(settings=BY_MONARCH) as job:
        worker, trainer = await job.member()
        trainer.die()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(worker.hear(), SETTINGS.adopt_timeout_s)
        job.monarch.calls[0].set_exception(RuntimeError("gone"))
        assert await worker.hear() == announce.Exit(reason="trainer process ended")
        assert (await job.until(events.MemberLost)).reason == "Monarch: gone"


@in_loop
async def test_detection_by_monarch_lets_go_of_a_life_that_had_no_trainer() -> None:
    async with running(settings=BY_MONARCH) as job:
        job.monarch.attach_error = RuntimeError("no route")
        worker = await job.worker()
        assert isinstance(await worker.hear(), announce.Exit)
        worker.die()
        assert (await job.until(events.MemberLost)).reason == "worker host ended"


@in_loop
async def test_rubbish_ends_a_connection_and_nothing_else() -> None:
    async with running() as job:
        for rubbish in (b"hello\n", b"{}\n", b"x" * (announce.LINE_BYTES_MAX * 2), b'{"say":"at","step":1}\n'):
            peer = await job.connect()
            peer.say_raw(rubbish)
            assert await peer.hear() is None
        worker, _ = await job.member()
        worker.say_raw(b"?\n")
        assert "not a message" in (await job.until(events.MemberLost)).reason
        await job.member(incarnation=2)


@in_loop
async def test_the_job_is_over_when_all_trainers_finished() -> None:
    async with running(replicas=2) as job:
        (_, first), (_, second) = await job.member("replica-0"), await job.member("replica-1")
        first.say(announce.Finished(reason="steps_reached"))
        second.say(announce.Finished(reason="steps_reached"))
        assert await job.over == "steps_reached"
        assert job.seen[-1] == events.ControllerFinished(reason="steps_reached")


@in_loop
async def test_one_that_cannot_finish_is_not_waited_for_long() -> None:
    async with running(replicas=2) as job:
        (_, first), _ = await job.member("replica-0"), await job.member("replica-1")
        first.say(announce.Finished(reason="steps_reached"))
        assert await job.over == "steps_reached"


@in_loop
async def test_nobody_trains_on_alone_when_another_has_made_all_steps() -> None:
    async with running(replicas=3) as job:
        (_, first), (_, slow) = await job.member("replica-0"), await job.member("replica-1")
        first.say(announce.Finished(reason="steps_reached"))
        assert await slow.hear() == announce.StopAfter(step=0)
        late = await job.trainer("replica-2")
        assert await late.hear() == announce.StopAfter(step=0)


@in_loop
async def test_a_stop_request_ends_all_trainers_after_the_same_step() -> None:
    async with running(replicas=2) as job:
        trainers = [(await job.member(name))[1] for name in ("replica-0", "replica-1")]
        job.controller.stop()
        for step, trainer in enumerate(trainers, start=4):
            assert await trainer.hear() == announce.Ask()
            trainer.say(announce.At(step=step))
        for trainer in trainers:
            assert await trainer.hear() == announce.StopAfter(step=7)
            trainer.say(announce.Finished(reason="stopped"))
        assert await job.over == "stopped"


@in_loop
async def test_a_stop_request_without_trainers_ends_the_job() -> None:
    async with running() as job:
        job.controller.stop()
        assert await job.over == "stopped"
