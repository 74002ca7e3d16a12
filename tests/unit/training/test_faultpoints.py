"""Fault points without a trainer: what the socket answers, what a point does, and that every order ends."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import events, faultpoints
from training.faultpoints import FaultPoints, Ordered, Server

WAIT_S_MAX = 10.0


class Bench:
    """Fault points on a clock that tests move, with what they emitted."""

    def __init__(self) -> None:
        self.now = 100.0
        self.hits: list[events.FaultPointHit] = []
        self.points = FaultPoints(lambda event: self.hits.append(cast(events.FaultPointHit, event)), lambda: self.now)

    def ask(self, do: str, order: str = "o1", **fields: Any) -> dict[str, Any]:
        return self.points.answer(json.dumps({"do": do, "order": order, **fields}).encode())

    def arm(self, order: str, point: str, action: str, ttl_s: float = 3.0, **fields: Any) -> None:
        asked = self.ask("arm", order, ttl_s=ttl_s, point=point, action=action, **fields)
        assert asked == {"ok": True, "hits": 0}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_nothing_happens_at_a_point_without_an_order(bench: Bench) -> None:
    bench.arm("o1", "in_forward", "error")
    assert bench.points.at("in_dataload", 1) == ()
    assert bench.hits == []


def test_a_hit_is_told_with_the_step_and_counted(bench: Bench) -> None:
    bench.arm("o1", "before_allreduce", "nan")
    assert bench.points.at("before_allreduce", 7) == ["nan"]
    assert bench.points.at("before_allreduce", 8) == ["nan"]
    told = [(hit.order, hit.point, hit.action, hit.step) for hit in bench.hits]
    assert told == [("o1", "before_allreduce", "nan", 7), ("o1", "before_allreduce", "nan", 8)]
    assert bench.ask("disarm") == {"ok": True, "hits": 2}
    assert bench.points.at("before_allreduce", 9) == ()


def test_after_its_times_an_order_is_held_without_effect(bench: Bench) -> None:
    bench.arm("o1", "before_commit", "lie", times=2)
    assert [bench.points.at("before_commit", step) for step in (1, 2, 3)] == [["lie"], ["lie"], []]
    assert bench.ask("renew") == {"ok": True, "hits": 2}


def test_what_cannot_be_done_this_time_is_not_counted(bench: Bench) -> None:
    bench.arm("o1", "before_allreduce", "nan", times=1)
    assert bench.points.at("before_allreduce", 1, without=("nan",)) == []
    assert bench.points.at("before_allreduce", 2) == ["nan"]


def test_an_error_names_the_point_and_the_order(bench: Bench) -> None:
    bench.arm("f1.replica-0", "in_heal", "error")
    with pytest.raises(Ordered, match=r"ordered to fail in heal, by f1\.replica-0"):
        bench.points.at("in_heal", 3)


def test_an_order_ends_its_time_after_the_last_renewal(bench: Bench) -> None:
    bench.arm("o1", "in_forward", "error", ttl_s=2.0)
    bench.now += 1.9
    assert bench.ask("renew")["ok"]
    bench.now += 1.9
    with pytest.raises(Ordered):
        bench.points.at("in_forward", 1)
    bench.now += 0.2
    assert bench.points.at("in_forward", 1) == []
    assert bench.points.at("in_forward", 1) == (), "the dict is empty again"
    assert bench.ask("renew")["error"] == "no order o1: it was never armed, or its time is over"


@given(
    st.lists(
        st.tuples(st.sampled_from(["arm", "renew", "disarm", "wait", "at"]), st.sampled_from("abc"), st.floats(0, 3)),
        max_size=40,
    )
)
def test_any_sequence_of_orders_is_followed_as_told(acts: list[tuple[str, str, float]]) -> None:
    """Against the plainest model there is: deadline by id."""
    bench, ends = Bench(), dict[str, float]()
    for act, order, seconds in acts:
        ends = {name: end for name, end in ends.items() if end > bench.now}
        if act == "wait":
            bench.now += seconds
        elif act == "at":
            before = len(bench.hits)
            bench.points.at("before_commit", 1)
            assert [hit.order for hit in bench.hits[before:]] == list(ends)
        elif act == "arm":
            asked = bench.ask("arm", order, ttl_s=2.0, point="before_commit", action="lie")
            assert asked["ok"] == (order not in ends)
            ends.setdefault(order, bench.now + 2.0)
        else:
            assert bench.ask(act, order)["ok"] == (order in ends)
            if act == "disarm":
                ends.pop(order, None)
            elif order in ends:
                ends[order] = bench.now + 2.0


ARM = {"do": "arm", "order": "o2", "ttl_s": 3.0, "point": "in_forward", "action": "pause"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"order": "o1"}, "order o1 is held already; disarm it, or choose another id"),
        ({"action": "nan"}, "nan does not go with in_forward, which takes pause, delay, hold_gil, error"),
        ({"point": "in_froward"}, "Invalid enum value 'in_froward' - at `$.point`"),
        ({"ttl_s": 0.5}, "ttl_s 0.5 is not above 0.5 and at most 15"),
        ({"ttl_s": 15.1}, "ttl_s 15.1 is not above 0.5 and at most 15"),
        ({"action": "delay"}, "delay needs delay_s"),
        ({"delay_s": 1.0}, "pause takes no delay_s"),
        ({"action": "delay", "delay_s": -1.0}, "delay_s -1 is not above 0"),
        ({"action": "hold_gil", "delay_s": 61}, "delay_s 61 of hold_gil, which nobody can end early, is over 60"),
        ({"times": 0}, "Expected `int` >= 1 - at `$.times`"),
        ({"do": "explode"}, "Invalid value 'explode' - at `$.do`"),
        ({"do": "disarm"}, "Object contains unknown field `ttl_s`"),
    ],
)
def test_what_cannot_be_followed_is_refused_in_one_line(bench: Bench, change: dict[str, Any], error: str) -> None:
    bench.arm("o1", "in_dataload", "pause")
    assert bench.points.answer(json.dumps(ARM | change).encode()) == {"ok": False, "error": error}
    assert bench.points.at("in_forward", 1) == ()


@given(st.binary(max_size=200))
def test_no_line_harms_the_answering_thread(line: bytes) -> None:
    answer = FaultPoints().answer(line)
    assert answer["ok"] is False
    assert "\n" not in answer["error"]


def test_orders_are_bounded_in_number(bench: Bench) -> None:
    for number in range(faultpoints.ORDERS_MAX):
        bench.arm(f"n{number}", "in_serve", "pause")
    asked = bench.ask("arm", "more", ttl_s=3.0, point="in_serve", action="pause")
    assert asked == {"ok": False, "error": "100 orders are held already; disarm one"}


class Trainer:
    """Stands at a point on a thread of its own."""

    def __init__(self, points: FaultPoints, point: faultpoints.Point) -> None:
        self.struck: list[str] = []
        self._thread = threading.Thread(target=lambda: self.struck.extend(points.at(point, 1)), daemon=True)
        self._thread.start()

    def stays(self) -> bool:
        return self._thread.is_alive()

    def goes_on(self) -> None:
        self._thread.join(WAIT_S_MAX)
        assert not self._thread.is_alive()


class Real:
    """Fault points in real time, and a wait for their hits."""

    def __init__(self) -> None:
        self._hits: list[events.FaultPointHit] = []
        self._came = threading.Condition()
        self.points = FaultPoints(self._emit)

    def _emit(self, event: events.Event) -> None:
        with self._came:
            self._hits.append(cast(events.FaultPointHit, event))
            self._came.notify_all()

    def ask(self, **request: Any) -> dict[str, Any]:
        return self.points.answer(json.dumps(request).encode())

    def until_hits(self, number: int) -> None:
        with self._came:
            assert self._came.wait_for(lambda: len(self._hits) >= number, WAIT_S_MAX)


@pytest.fixture
def real() -> Real:
    return Real()


def test_a_pause_ends_when_its_order_is_disarmed(real: Real) -> None:
    assert real.ask(**ARM | {"ttl_s": 15.0})["ok"]
    trainer = Trainer(real.points, "in_forward")
    real.until_hits(1)
    assert trainer.stays()
    assert real.ask(do="disarm", order="o2") == {"ok": True, "hits": 1}
    trainer.goes_on()


@pytest.mark.parametrize("action", [{"action": "pause"}, {"action": "delay", "delay_s": 500.0}])
def test_a_wait_ends_when_nobody_renews_it(real: Real, action: dict[str, Any]) -> None:
    began = time.monotonic()
    assert real.ask(**ARM | action | {"ttl_s": 0.6})["ok"]
    trainer = Trainer(real.points, "in_forward")
    trainer.goes_on()
    assert 0.6 <= time.monotonic() - began < 2.0
    assert not real.ask(do="renew", order="o2")["ok"]


def test_a_renewed_pause_stays_beyond_its_first_time(real: Real) -> None:
    began = time.monotonic()
    assert real.ask(**ARM | {"ttl_s": 0.6})["ok"]
    trainer = Trainer(real.points, "in_forward")
    while time.monotonic() < began + 1.0:
        assert trainer.stays()
        assert real.ask(do="renew", order="o2")["ok"]
    trainer.goes_on()
    assert time.monotonic() - began >= 1.6


def test_an_order_that_comes_during_a_pause_takes_over_when_it_ends(real: Real) -> None:
    assert real.ask(**ARM | {"ttl_s": 15.0, "times": 1})["ok"]
    trainer = Trainer(real.points, "in_forward")
    real.until_hits(1)
    assert real.ask(**ARM | {"order": "o3", "ttl_s": 15.0})["ok"]
    assert real.ask(do="disarm", order="o2")["ok"]
    real.until_hits(2)
    assert trainer.stays()
    assert real.ask(do="disarm", order="o3") == {"ok": True, "hits": 1}
    trainer.goes_on()


def test_no_python_runs_while_the_lock_is_held_and_orders_outlive_it(real: Real) -> None:
    assert real.ask(**ARM | {"ttl_s": 0.6, "action": "hold_gil", "delay_s": 0.8})["ok"]
    gaps: list[float] = []
    stop = threading.Event()
    running = threading.Event()

    def tick() -> None:
        last = time.monotonic()
        while not stop.is_set():
            now = time.monotonic()
            gaps.append(now - last)
            last = now
            running.set()
        gaps.append(time.monotonic() - last)  # It may run again only after it was told to stop.

    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    assert running.wait(WAIT_S_MAX)
    real.points.at("in_forward", 1)
    assert real.ask(do="renew", order="o2") == {"ok": True, "hits": 1}
    stop.set()
    ticking.join(WAIT_S_MAX)
    assert max(gaps) >= 0.8


def test_a_point_without_orders_costs_well_under_a_microsecond(bench: Bench) -> None:
    """A step has nine points and takes 200 ms and more."""
    rounds = 20_000
    best = min(timed(lambda: bench.points.at("in_forward", 1), rounds) for _ in range(20))
    assert best / rounds < 1e-6


def timed(act: Callable[[], object], rounds: int) -> float:
    began = time.perf_counter()
    for _ in range(rounds):
        act()
    return time.perf_counter() - began


class Served:
    """A server in a folder, and connections to it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.real = Real()
        self.server = Server(self.real.points, folder)

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(WAIT_S_MAX)
        folder = os.open(self.folder, os.O_PATH)
        connection.connect(f"/proc/self/fd/{folder}/{faultpoints.SOCKET}")
        os.close(folder)
        return connection


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    one = Served(tmp_path / ("long" * 40))
    yield one
    one.server.close()


def exchange(connection: socket.socket, line: bytes) -> Any:
    connection.sendall(line)
    with connection.makefile("rb") as lines:
        reply = lines.readline()
    return json.loads(reply) if reply else None


def test_one_connection_carries_many_requests(served: Served) -> None:
    with served.connect() as connection:
        assert exchange(connection, json.dumps(ARM).encode() + b"\n") == {"ok": True, "hits": 0}
        assert exchange(connection, b'{"do":"renew","order":"o2"}\n') == {"ok": True, "hits": 0}
        assert exchange(connection, b"no json\n")["ok"] is False
        assert exchange(connection, b'{"do":"disarm","order":"o2"}\n') == {"ok": True, "hits": 0}


def test_the_socket_is_for_its_user_only(served: Served) -> None:
    mode = (served.folder / faultpoints.SOCKET).lstat().st_mode
    assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)


def test_a_line_without_end_ends_its_connection_only(served: Served) -> None:
    with served.connect() as endless, served.connect() as other:
        assert exchange(endless, b"x" * faultpoints.LINE_BYTES_MAX) is None
        assert exchange(other, json.dumps(ARM).encode() + b"\n")["ok"]


def test_senders_do_not_wait_for_each_other(served: Served) -> None:
    with served.connect() as silent, served.connect() as half:
        half.sendall(b'{"do":')
        others = [served.connect() for _ in range(20)]
        for number, other in enumerate(others):
            order = json.dumps(ARM | {"order": f"n{number}"}).encode()
            assert exchange(other, order + b"\n")["ok"]
            other.close()
        assert exchange(silent, b'{"do":"disarm","order":"n19"}\n')["ok"]


def test_many_threads_order_and_strike_at_once(served: Served) -> None:
    """Each sender's own orders are counted rightly, whatever the others do."""
    wrong: list[object] = []

    def send(name: str) -> None:
        with served.connect() as connection:
            for number in range(30):
                arm = ARM | {"order": f"{name}{number}", "point": "before_commit", "action": "lie", "times": 1}
                replies = [exchange(connection, json.dumps(arm).encode() + b"\n")]
                served.real.points.at("before_commit", number)
                replies.append(
                    exchange(connection, json.dumps({"do": "disarm", "order": arm["order"]}).encode() + b"\n")
                )
                if replies != [{"ok": True, "hits": 0}, {"ok": True, "hits": 1}]:
                    wrong.append(replies)

    senders = [threading.Thread(target=send, args=(name,)) for name in "abcdef"]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(WAIT_S_MAX)
    assert wrong == []


def test_the_next_trainer_takes_the_socket_over(tmp_path: Path) -> None:
    first, second = Served(tmp_path), Served(tmp_path)
    with second.connect() as connection:
        assert exchange(connection, json.dumps(ARM).encode() + b"\n")["ok"]
    assert not first.real.ask(do="renew", order="o2")["ok"]
    assert second.real.ask(do="renew", order="o2")["ok"]
    first.server.close()
    second.server.close()
