"""Injections are made, proven, and refused where they cannot be."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio
import pytest
from clusters import WAIT_S, Running, toy_cluster

from chaos.model.events import MemberExited, MemberStarted, TrainerStarted
from chaos.model.injections import Delete, Drop, Launch, NoNames, Process, Signal
from chaos.model.ports import InjectionRefused
from chaos.model.topology import Restart
from chaos.platforms.local import doctor, owner

pytestmark = pytest.mark.anyio


def is_alive(pid: int) -> bool:
    stat = owner.stat(pid)
    return stat is not None and stat[0] not in "ZX"


def main_pid(running: Running, member: str) -> int:
    return int(running.journal.of(member, MemberStarted)[-1].pid)


async def test_delete_is_proven_when_the_pod_is_gone(tmp_path: Path, isolation: str) -> None:
    async with toy_cluster(tmp_path, isolation) as running:
        pid = main_pid(running, "replica-0")
        assert is_alive(pid)
        proof = await running.cluster.inject(Delete("replica-0"))
        assert not is_alive(pid)
        assert (proof.member, proof.incarnation) == ("replica-0", 1)
        assert str(pid) in proof.evidence
        again = await running.journal.ready("replica-0", 2)
        assert isinstance(again, TrainerStarted)
        assert running.journal.of("replica-0", MemberExited)[0].status == -signal.SIGKILL


async def test_a_signal_hits_the_trainer_and_nothing_else(tmp_path: Path, isolation: str) -> None:
    async with toy_cluster(tmp_path, isolation) as running:
        told = running.journal.of("replica-0", TrainerStarted)[0].pid
        assert told == 2 or isolation == "processes", "the trainer counts in its own pid namespace"
        proof = await running.cluster.inject(Signal("replica-0", Process.TRAINER, signal.SIGKILL))
        assert proof.incarnation == 1 and "gone" in proof.evidence
        look = await running.ask("replica-0", "look")
        assert told not in look["pids"]
        assert is_alive(main_pid(running, "replica-0"))
        assert not running.journal.of("replica-0", MemberExited)
        with pytest.raises(InjectionRefused, match="gone already"):
            await running.cluster.inject(Signal("replica-0", Process.TRAINER, signal.SIGKILL))


async def test_a_main_process_is_stopped_and_runs_again(tmp_path: Path, isolation: str) -> None:
    async with toy_cluster(tmp_path, isolation) as running:
        pid = main_pid(running, "replica-1")
        for number, states in ((signal.SIGSTOP, "T"), (signal.SIGCONT, "SR")):
            await running.cluster.inject(Signal("replica-1", Process.MAIN, number))
            stat = owner.stat(pid)
            assert stat is not None and stat[0] in states
        await running.cluster.inject(Signal("replica-1", Process.MAIN, signal.SIGTERM))
        assert not is_alive(pid)
        exited = await running.journal.wait(lambda event: isinstance(event, MemberExited))
        assert isinstance(exited, MemberExited) and exited.status == 0, "it ended in order"


async def test_a_member_on_demand_lives_while_it_is_held(tmp_path: Path, isolation: str) -> None:
    async with toy_cluster(tmp_path, isolation) as running:
        assert not running.journal.of("leftover-0")
        for life in (1, 2):
            async with running.cluster.hold(Launch("leftover-0")) as hold:
                pid = main_pid(running, "leftover-0")
                assert is_alive(pid)
                assert hold.proof.incarnation == life
                with pytest.raises(InjectionRefused, match="leftover-0 lives already"):
                    async with running.cluster.hold(Launch("leftover-0")):
                        pass
                orphan = await running.ask("leftover-0", "orphan")
            assert not is_alive(pid)
            assert isolation != "processes" or not is_alive(orphan)
            assert hold.reverted is not None and not hold.trouble
        assert len(running.journal.of("leftover-0", MemberStarted)) == 2


async def test_a_drop_follows_a_peer_that_is_born_again(tmp_path: Path, separate: str) -> None:
    if "nft" not in doctor.capabilities(separate):
        pytest.skip("this machine lacks nft")

    async def reached() -> set[str]:
        """Whom replica-0 gets an answer from; reached anew each time, since names lead to new addresses."""
        others = ("replica-1", "controller")
        return {other for other in others if await running.ask("replica-0", "reach", host=other)}

    async with toy_cluster(tmp_path, separate) as running:
        assert await reached() == {"replica-1", "controller"}
        async with running.cluster.hold(Drop("replica-0", ("replica-1",))):
            assert await reached() == {"controller"}
            await running.cluster.inject(Delete("replica-1"))
            await running.journal.ready("replica-1", 2)
            with anyio.fail_after(WAIT_S):
                while await reached() != {"controller"}:
                    await anyio.sleep(0.1)
        assert await reached() == {"replica-1", "controller"}


async def test_what_cannot_be_hit_is_refused(tmp_path: Path) -> None:
    async with toy_cluster(tmp_path, "processes", Restart.NEVER) as running:
        with pytest.raises(InjectionRefused, match="no member replica-9"):
            await running.cluster.inject(Delete("replica-9"))
        with pytest.raises(InjectionRefused, match="controller has told of no trainer"):
            await running.cluster.inject(Signal("controller", Process.TRAINER, signal.SIGKILL))
        await running.cluster.inject(Delete("replica-0"))
        for injection in (Delete("replica-0"), Signal("replica-0", Process.MAIN, signal.SIGKILL)):
            with pytest.raises(InjectionRefused, match="replica-0 is not alive"):
                await running.cluster.inject(injection)


@pytest.mark.parametrize(
    ("names", "lost"), [((), {"replica-1", "controller"}), (("replica-1",), {"replica-1"})], ids=["all", "one"]
)
async def test_names_are_lost_in_one_pod_and_come_back(
    tmp_path: Path, separate: str, names: tuple[str, ...], lost: set[str]
) -> None:
    everyone = {"replica-0", "replica-1", "controller"}
    async with toy_cluster(tmp_path, separate) as running:

        async def unknown(asking: str) -> set[str]:
            return {name for name in everyone if await running.ask(asking, "resolve", name=name) is None}

        async with running.cluster.hold(NoNames("replica-0", names)):
            assert await unknown("replica-0") == lost
            assert await unknown("replica-1") == set()
        assert await unknown("replica-0") == set()
