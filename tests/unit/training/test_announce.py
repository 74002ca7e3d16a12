"""A member's link to the controller: it comes back, and says what must not be lost again."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator

import pytest

from training import announce
from training.worker import Hellos

TIMEOUT_S = 10.0
HELLO = announce.Worker(
    name="replica-0", incarnation=1, fresh=True, monarch="m", host="h", data_interface="lo", doors=[], events="e",
    scratch="s", controller="c",
)  # fmt: skip


class Listener:
    """The controller's port, used by hand."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(TIMEOUT_S)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def accept(self) -> socket.socket:
        connection, _ = self._socket.accept()
        connection.settimeout(TIMEOUT_S)
        return connection

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


def lines(connection: socket.socket, count: int) -> list[announce.FromMember]:
    with connection.makefile("rb") as file:
        return [announce.from_member(file.readline()) for _ in range(count)]


def test_only_the_first_hello_is_fresh(listener: Listener) -> None:
    announce.Link(listener.address, Hellos(HELLO), lambda message: None).start()
    for fresh in (True, False, False):
        with listener.accept() as connection:
            (hello,) = lines(connection, 1)
            assert isinstance(hello, announce.Worker)
            assert hello.fresh is fresh


def test_last_words_are_said_on_every_connection(listener: Listener) -> None:
    link = announce.Link(listener.address, lambda: HELLO, lambda message: None)
    link.start()
    word = announce.Finished(reason="stopped")
    with listener.accept() as connection:
        lines(connection, 1)
        link.keep_saying(word)
        assert lines(connection, 1) == [word]
    with listener.accept() as connection:
        assert lines(connection, 2) == [HELLO, word]


def test_what_the_controller_says_is_handed_on_and_rubbish_survived(listener: Listener) -> None:
    told: queue.Queue[announce.FromController] = queue.Queue()
    announce.Link(listener.address, lambda: HELLO, told.put).start()
    with listener.accept() as connection:
        connection.sendall(announce.encode(announce.StopAfter(step=4)) + b"rubbish\n")
        assert told.get(timeout=TIMEOUT_S) == announce.StopAfter(step=4)
        with listener.accept() as again:
            again.sendall(announce.encode(announce.Ask()))
            assert told.get(timeout=TIMEOUT_S) == announce.Ask()


def test_sending_without_a_controller_is_no_error() -> None:
    announce.Link("127.0.0.1:1", lambda: HELLO, lambda message: None).send(announce.At(step=1))


@pytest.mark.parametrize("text", ["nowhere", ":1", "host:", "host:one"])
def test_an_address_is_host_and_port(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        announce.parse_address(text)
