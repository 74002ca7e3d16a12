"""What a pod is: its names, networks, addresses, folders and processes, and what becomes of them in its next life."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from clusters import WAIT_S, Running, toy_cluster

from chaos.model.events import MemberExited, MemberStarted
from chaos.model.injections import Delete
from chaos.model.topology import Restart
from chaos.platforms.local import cgroups, owner

pytestmark = pytest.mark.anyio


def host_of(running: Running, isolation: str, member: str) -> str:
    """What other members reach it by."""
    return member if isolation != "processes" else str(running.journal.of(member, MemberStarted)[-1].address)


async def job_over(running: Running) -> int:
    with anyio.fail_after(WAIT_S):
        return await running.cluster.wait_job_over()


async def test_members_reach_each_other_and_the_next_life_of_one(tmp_path: Path, isolation: str) -> None:
    async with toy_cluster(tmp_path, isolation) as running:
        host = host_of(running, isolation, "replica-1")
        assert await running.ask("replica-0", "reach", host=host) == "replica-1/1"
        await running.cluster.inject(Delete("replica-1"))
        await running.journal.ready("replica-1", 2)
        assert await running.ask("replica-0", "reach", host=host) == "replica-1/2"
        assert await running.ask("replica-1", "reach", host=host_of(running, isolation, "controller")) == "controller/1"


@pytest.fixture(scope="module")
async def calm(separate: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A cluster in namespaces for tests that disturb nothing."""
    async with toy_cluster(tmp_path_factory.mktemp("calm"), separate) as running:
        yield running


async def test_a_pod_is_apart(calm: Running) -> None:
    look = await calm.ask("replica-0", "look")
    assert look["hostname"] == "replica-0"
    assert look["pid"] == 1 and len(look["pids"]) == 2
    assert set(look["interfaces"]) == set(look["seen_interfaces"]) == {"lo", "eth0", "net1"}
    assert look["interfaces"]["eth0"] == look["address"]
    assert look["folder"] == str(calm.run_dir / "members" / "replica-0" / "scratch")
    assert not re.search(r"(?m)^nameserver", look["resolv"])
    mine = f"mine-{os.getpid()}"
    await calm.ask("replica-0", "touch", path=f"/tmp/{mine}")
    assert mine in (await calm.ask("replica-0", "look"))["tmp"]
    assert mine not in (await calm.ask("replica-1", "look"))["tmp"]
    assert not os.path.exists(f"/tmp/{mine}")


async def test_both_networks_join_nodes_and_stay_off_the_machines_own(calm: Running) -> None:
    nodes = {calm.journal.of(member, MemberStarted)[0].node for member in ("replica-0", "replica-1")}
    assert len(nodes) == 2
    look = await calm.ask("replica-1", "look")
    for interface in ("eth0", "net1"):
        assert await calm.ask("replica-0", "reach", host=look["interfaces"][interface]) == "replica-1/1"
    own = {name for _index, name in socket.if_nameindex()}
    assert not own & {"control", "data", "net1"} and not [name for name in own if "-" in name]


async def test_a_pod_has_a_cgroup_below_its_nodes(calm: Running, separate: str) -> None:
    if separate != "namespaces" or not cgroups.hierarchies():
        pytest.skip("no cgroups: they need root and mounted controllers")
    look = await calm.ask("replica-1", "look")
    paths = re.findall(r"(?m)^\d+:([^:]*):(.*/torchchaos-.*)$", look["groups"])
    assert paths and all(path.endswith("/node-1/replica-1.1") for _controllers, path in paths)
    assert len(paths) == len(cgroups.hierarchies())


async def test_a_command_can_be_run_in_every_pod_and_node(calm: Running) -> None:
    text = (calm.run_dir / "platform" / "enter.txt").read_text()
    lines = dict(line.split(None, 1) for line in text.splitlines())
    assert set(lines) == {"controller", "replica-0", "replica-1", "node-0", "node-1", "node-control"}
    command = [*lines["replica-0"].split(), "hostname"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "replica-0\n"
    command = [*lines["node-0"].split(), "cat", "/proc/net/dev"]
    seen = subprocess.run(command, capture_output=True, text=True).stdout
    assert "control-up:" in seen and "data-up:" in seen


async def test_what_a_pod_needs_below_a_private_folder_stays_visible(
    tmp_path: Path, separate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("run", "import", "data", "other")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    monkeypatch.syspath_prepend(tmp_path / "import")
    async with toy_cluster(tmp_path / "run", separate, visible=[tmp_path / "data"]) as running:
        seen = [await running.ask("replica-0", "exists", path=str(tmp_path / name / "file")) for name in names]
    assert seen == [True, True, True, False]


async def test_names_follow_their_members_to_new_addresses(tmp_path: Path, separate: str) -> None:
    addresses = set()
    async with toy_cluster(tmp_path, separate) as running:
        for life in (1, 2, 3):
            started = running.journal.of("replica-1", MemberStarted)[-1]
            assert started.incarnation == life
            for asked in ("replica-0", "controller", "replica-1"):
                assert await running.ask(asked, "resolve", name="replica-1") == started.address
            interfaces = (await running.ask("replica-1", "look"))["interfaces"]
            addresses |= {interfaces["eth0"], interfaces["net1"]}
            await running.cluster.inject(Delete("replica-1"))
            await running.journal.ready("replica-1", life + 1)
        assert await running.ask("replica-0", "resolve", name="localhost") == "127.0.0.1"
        assert await running.ask("replica-0", "resolve", name="example.com") is None
    assert len(addresses) == 6


async def test_plain_processes_keep_their_address_and_get_a_new_temporary_folder(tmp_path: Path) -> None:
    async with toy_cluster(tmp_path, "processes") as running:
        first = await running.ask("replica-1", "look")
        await running.cluster.inject(Delete("replica-1"))
        await running.journal.ready("replica-1", 2)
        second = await running.ask("replica-1", "look")
        assert first["address"] == second["address"]
        assert first["tmpdir"] != second["tmpdir"]
        assert os.path.isdir(second["tmpdir"]) and not os.path.exists(first["tmpdir"])
    assert not os.path.exists(second["tmpdir"])


async def test_two_clusters_at_once_do_not_meet(tmp_path: Path, isolation: str) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with toy_cluster(tmp_path / "one", isolation) as one, toy_cluster(tmp_path / "two", isolation) as two:
        if isolation == "processes":
            addresses = {running.journal.of("replica-0", MemberStarted)[0].address for running in (one, two)}
            assert len(addresses) == 2
        await one.cluster.inject(Delete("replica-0"))
        await one.journal.ready("replica-0", 2)
        host = host_of(two, isolation, "replica-0")
        assert await two.ask("replica-1", "reach", host=host) == "replica-0/1"
        assert not two.journal.of("replica-0", MemberExited)


@pytest.mark.parametrize("status", [0, 3])
async def test_a_member_that_ends_is_started_again(tmp_path: Path, isolation: str, status: int) -> None:
    async with toy_cluster(tmp_path, isolation) as running:
        await running.ask("replica-0", "exit", status=status)
        await running.journal.ready("replica-0", 2)
        kinds = [event.kind for event in running.journal.of("replica-0")]
        assert kinds == ["member_started", "trainer_started", "member_exited", "member_started", "trainer_started"]
        assert [event.status for event in running.journal.of("replica-0", MemberExited)] == [status]


async def test_a_member_that_must_not_restart_stays_away(tmp_path: Path) -> None:
    async with toy_cluster(tmp_path, "processes", Restart.NEVER) as running:
        await running.ask("replica-0", "exit", status=3)
        await running.journal.wait(lambda event: isinstance(event, MemberExited))
        await running.ask("controller", "exit", status=4)
        assert await job_over(running) == 4
        assert len(running.journal.of("replica-0", MemberStarted)) == 1


async def test_further_short_lives_wait_longer(tmp_path: Path) -> None:
    async with toy_cluster(tmp_path, "processes") as running:
        for life in (1, 2, 3):
            await running.ask("replica-0", "exit", status=1)
            await running.journal.ready("replica-0", life + 1)
        ends = [event.t_s for event in running.journal.of("replica-0", MemberExited)]
        begins = [event.t_s for event in running.journal.of("replica-0", MemberStarted)][1:]
        waits = [begin - end for begin, end in zip(begins, ends, strict=True)]
        assert waits[0] < 0.4 and 0.5 <= waits[1] < 0.9 and 1.0 <= waits[2] < 1.4


async def test_the_controllers_success_ends_the_job_and_its_failure_does_not(tmp_path: Path, isolation: str) -> None:
    async with toy_cluster(tmp_path, isolation) as running:
        await running.ask("controller", "exit", status=1)
        await running.journal.ready("controller", 2)
        await running.ask("controller", "exit", status=0)
        assert await job_over(running) == 0
        assert len(running.journal.of("controller", MemberStarted)) == 2


async def test_stop_ends_the_controller_first_and_restarts_nobody(tmp_path: Path, isolation: str) -> None:
    async with toy_cluster(tmp_path, isolation) as running:
        await running.cluster.stop()
        await running.cluster.stop()  # Its answer comes after any life that wrongly began.
        assert not [event for event in running.journal.events if event.incarnation > 1]
        ended = [event for event in running.journal.events if isinstance(event, MemberExited)]
        assert (ended[0].member, ended[0].status) == ("controller", 0)
        assert sorted(event.member for event in ended) == ["controller", "replica-0", "replica-1"]
        assert all(event.status == 0 for event in ended)
        kinds = [event.kind for event in running.journal.of("controller")]
        assert kinds == ["member_started", "controller_started", "controller_finished", "member_exited"]


async def test_a_pods_children_end_with_it(tmp_path: Path, isolation: str) -> None:
    async with toy_cluster(tmp_path, isolation) as running:
        for end in ("delete", "exit"):
            life = running.journal.of("replica-0", MemberStarted)[-1].incarnation
            orphan = await running.ask("replica-0", "orphan")
            mark = f"/replica-0/{life}"
            alive = [pid for pid, found in owner.marked() if found.endswith(mark) and _runs_in(pid, tmp_path)]
            assert len(alive) == 3, "main process, trainer and orphan"
            assert isolation != "processes" or orphan in alive
            if end == "delete":
                await running.cluster.inject(Delete("replica-0"))
            else:
                await running.ask("replica-0", "exit", status=1)
                await running.journal.wait(lambda event: isinstance(event, MemberExited) and event.status == 1)
            assert not [pid for pid in alive if (stat := owner.stat(pid)) and stat[0] not in "ZX"]
            await running.journal.ready("replica-0", life + 1)


def _runs_in(pid: int, folder: Path) -> bool:
    return os.readlink(f"/proc/{pid}/cwd").startswith(str(folder))
