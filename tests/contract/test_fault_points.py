"""Orders to a trainer: the framework's real client and the server of each job, the real one and the toy."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import anyio
import pytest
import toypoints

from chaos.model.injections import Action, FaultPoint, Point
from chaos.model.ports import Hold, InjectionRefused
from chaos.platforms import faultpoints as client
from training import events, faultpoints

PATIENCE_S = 20.0
WAITS = (Action.DELAY, Action.HOLD_GIL)


class Real:
    """The real job's end, and the orders whose hits it told."""

    def __init__(self, folder: Path) -> None:
        self.told: list[str] = []
        self.points = faultpoints.FaultPoints(self._tell)
        self.server = faultpoints.Server(self.points, folder)

    def _tell(self, event: events.Event) -> None:
        assert isinstance(event, events.FaultPointHit)
        self.told.append(event.order)


class Toy:
    """The toy's end."""

    def __init__(self, folder: Path) -> None:
        self.told: list[str] = []
        self.points = toypoints.Points(lambda hit: self.told.append(hit["order"]))
        self.server = toypoints.Server(self.points, str(folder))


@pytest.fixture(params=[Real, Toy])
def trainer(request, tmp_path):
    one = request.param(tmp_path)
    yield one
    one.server.close()


def injection(point: Point, action: Action, **fields) -> FaultPoint:
    return FaultPoint("replica-0", point, action, delay_s=0.01 if action in WAITS else None, **fields)


def test_both_ends_know_the_same_points_and_actions():
    assert {point.value for point in Point} == set(get_args(faultpoints.Point))
    assert {action.value for action in Action} == set(get_args(faultpoints.Action))
    assert {action for actions in faultpoints.ACTIONS.values() for action in actions} == {each.value for each in Action}


def test_each_action_is_taken_where_it_goes_and_refused_elsewhere(trainer, tmp_path):
    async def order(wanted: FaultPoint) -> bool:
        try:
            async with client.hold(wanted, 1, tmp_path):
                return True
        except InjectionRefused as error:
            assert "does not go with" in str(error)
            return False

    async def all_orders() -> None:
        for point in Point:
            for action in Action:
                taken = await order(injection(point, action))
                assert taken == (action.value in faultpoints.ACTIONS[point.value]), (point, action)

    anyio.run(all_orders)


def test_an_order_strikes_while_it_is_held_and_is_proven_at_both_ends(trainer, tmp_path):
    async def run() -> None:
        async with client.hold(injection(Point.BEFORE_COMMIT, Action.LIE, times=2), 3, tmp_path) as held:
            assert held.proof.incarnation == 3
            assert [list(trainer.points.at("before_commit", step)) for step in (1, 2, 3)] == [["lie"], ["lie"], []]
        assert held.reverted is not None
        assert "dropped the order after 2 hits" in held.reverted.evidence
        assert trainer.told == [held.order] * 2
        assert not trainer.points.at("before_commit", 4)

    anyio.run(run)


def test_a_held_order_outlives_its_time_and_a_pause_ends_with_it(trainer, tmp_path, monkeypatch):
    monkeypatch.setattr(client, "TTL_S", 2.0)
    standing = threading.Thread(target=lambda: trainer.points.at("in_serve", 5), daemon=True)

    async def run() -> None:
        with anyio.fail_after(PATIENCE_S):
            async with client.hold(injection(Point.IN_SERVE, Action.PAUSE), 1, tmp_path) as held:
                standing.start()
                await anyio.sleep(3.0)  # Longer than its time: what is looked at is that nothing happens.
                assert standing.is_alive()
                assert not held.trouble

    anyio.run(run)
    standing.join(PATIENCE_S)
    assert not standing.is_alive()


def test_a_trainer_that_holds_its_lock_keeps_the_order(trainer, tmp_path, monkeypatch):
    """Renewals come too late then, and are no trouble."""
    monkeypatch.setattr(client, "TTL_S", 0.6)
    hold = FaultPoint("replica-0", Point.IN_FORWARD, Action.HOLD_GIL, delay_s=1.0, times=1)

    async def run() -> None:
        async with client.hold(hold, 1, tmp_path) as held:
            await anyio.to_thread.run_sync(trainer.points.at, "in_forward", 1)
            await anyio.sleep(0.5)  # Two renewals more.
        assert not held.trouble
        assert held.reverted is not None
        assert "after 1 hits" in held.reverted.evidence

    anyio.run(run)


def test_an_order_ends_with_its_trainer(trainer, tmp_path, monkeypatch):
    monkeypatch.setattr(client, "TTL_S", faultpoints.TTL_S_MAX)

    async def run() -> None:
        gone = anyio.Event()
        with anyio.fail_after(client.TTL_S / 2):
            async with client.hold(injection(Point.IN_FORWARD, Action.PAUSE), 1, tmp_path, gone) as held:
                (tmp_path / client.SOCKET).unlink()
                gone.set()
        assert held.reverted is not None
        assert "gone with its trainer" in held.reverted.evidence

    anyio.run(run)


FOLLOWER = """
import sys, toypoints
server = toypoints.Server(toypoints.Points(print), sys.argv[1])
print("there", flush=True)
sys.stdin.read()
"""


@contextmanager
def followed(folder: Path) -> Iterator[None]:
    """Another trainer has taken the pod over, and its socket."""
    path = {"PYTHONPATH": str(Path(toypoints.__file__).parent)}
    command = [sys.executable, "-c", FOLLOWER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=path) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"there\n"
        yield
        follower.kill()


@pytest.mark.parametrize("is_followed", [True, False])
def test_an_order_that_is_not_known_is_gone_with_its_trainer_or_lost(trainer, tmp_path, monkeypatch, is_followed):
    monkeypatch.setattr(client, "TTL_S", 0.6)

    async def ended(held: Hold) -> None:
        with anyio.fail_after(PATIENCE_S):
            while not held.ended:
                await anyio.sleep(0.01)

    async def hold() -> None:
        async with client.hold(injection(Point.IN_FORWARD, Action.ERROR), 1, tmp_path) as held:
            if is_followed:
                with followed(tmp_path):
                    await ended(held)
            else:
                trainer.points.answer(json.dumps({"do": "disarm", "order": held.order}).encode())
                await ended(held)
        assert held.target_gone == is_followed
        assert bool(held.trouble) != is_followed
        assert held.reverted is not None
        assert ("which another one follows" in held.reverted.evidence) == is_followed

    anyio.run(hold)


def test_no_trainer_is_told_as_such(tmp_path):
    async def run() -> None:
        async with client.hold(injection(Point.IN_FORWARD, Action.ERROR), 1, tmp_path):
            raise AssertionError("there is nobody")

    with pytest.raises(InjectionRefused, match="takes no orders"):
        anyio.run(run)
