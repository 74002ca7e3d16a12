"""Knocks that arrive, are refused, come too late, or never arrive."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from training import doors
from training.process import free_port

HOST = "127.0.0.1"


@pytest.fixture
def full() -> Iterator[socket.socket]:
    """A port where the kernel answers no more: its queue is full, and nobody takes connections."""
    with ExitStack() as stack:
        port = stack.enter_context(socket.create_server((HOST, 0), backlog=0))
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(port.getsockname())
        yield port


def at(port: socket.socket) -> str:
    return f"{HOST}:{port.getsockname()[1]}"


def test_a_door_is_reached_at_its_address_and_at_its_data_interface_s_and_as_often_as_one_knocks() -> None:
    for where in (doors.open_door(HOST, "lo"), doors.open_door("127.0.0.2", "lo"), doors.open_door(HOST, "none")):
        for _ in range(200):
            assert doors.reached(where) == set(where)
    assert [door.partition(":")[0] for door in doors.open_door("127.0.0.2", "lo")] == ["127.0.0.2", HOST]


def test_who_is_refused_has_arrived() -> None:
    door = f"{HOST}:{free_port(HOST)}"
    assert doors.reached([door]) == {door}


def test_where_no_knock_arrives_is_not_reached_and_does_not_hide_who_is(full: socket.socket) -> None:
    (open_one,) = doors.open_door(HOST, "none")
    began = time.monotonic()
    assert doors.reached([at(full), open_one]) == {open_one}
    assert time.monotonic() - began > 0.9 * doors.KNOCKING_S


def test_the_first_knock_may_be_lost(full: socket.socket) -> None:
    def make_room() -> None:
        for _ in range(2):
            full.accept()[0].close()

    later = threading.Timer(2.5 * doors.KNOCK_EVERY_S, make_room)
    later.start()
    assert doors.reached([at(full)]) == {at(full)}
    later.join()


def test_an_address_without_a_way_is_not_reached() -> None:
    assert doors.reached(["255.255.255.255:9"]) == set()
