"""How the processes of a job find the controller and each other's end: JSON lines over TCP connections.

A worker host and a trainer each open one connection to the controller and say who they are. The end of a connection is
the end of that life, known at once; keepalive tells a cut link within ``CUT_AFTER_S``. Whoever loses the controller
tries again for ever, with a pause that grows to ``RETRY_S_MAX``.
Not here: what the controller does about it (``controller``).
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable

import msgspec

from training.settings import Job

RETRY_S_MIN, RETRY_S_MAX = 0.05, 1.0
CONNECT_TIMEOUT_S = 5.0
BEAT_S = 0.2
KEEPALIVE_IDLE_S, KEEPALIVE_PAUSE_S, KEEPALIVE_PROBES = 1, 1, 2  # one may be lost
CUT_AFTER_S = KEEPALIVE_IDLE_S + KEEPALIVE_PAUSE_S * KEEPALIVE_PROBES
LINE_BYTES_MAX = 65_536

log = logging.getLogger(__name__)


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="say"):
    """One line."""


class Worker(Message, frozen=True, kw_only=True, tag="worker"):
    """I am the worker host of this life of a member. ``fresh``: no controller was told so before. ``doors``: where its
    peers can knock, ``HOST:PORT`` each (see ``doors``).
    """

    name: str
    incarnation: int
    fresh: bool
    monarch: str
    host: str
    data_interface: str
    doors: list[str]
    events: str
    scratch: str
    controller: str


class Trainer(Message, frozen=True, kw_only=True, tag="trainer"):
    """I am the trainer process of this life of a member."""

    name: str
    incarnation: int
    pid: int


class Beat(Message, frozen=True, kw_only=True, tag="beat"):
    """A trainer lives: it is this replica to TorchFT, in the group of this quorum, and has waited for its peers, or
    done nothing at all, for ``for_s``. ``step``: the updates in its state; ``step_s``: what the last one took.
    """

    replica_id: str
    quorum_id: int
    waits: bool
    for_s: float
    step: int
    step_s: float


class Tried(Message, frozen=True, kw_only=True, tag="tried"):
    """A trainer's answer to ``Try`` of this number: whether it reached each of the peers."""

    number: int
    reached: list[bool]


class Place(Message, frozen=True, kw_only=True, tag="place"):
    """From a trainer, and to the next one of its member: how to go on reading this shard after ``read`` batches, all of
    which the job has trained or passed over. ``state``: what TorchTitan's loader makes of its own, pickled.
    """

    read: int
    state: bytes


class At(Message, frozen=True, kw_only=True, tag="at"):
    """A trainer's answer to ``Ask``: the updates committed so far."""

    step: int


class Finished(Message, frozen=True, kw_only=True, tag="finished"):
    """A trainer is done: steps_reached or stopped."""

    reason: str


class Exit(Message, frozen=True, kw_only=True, tag="exit"):
    """To a worker host: end, so that the platform starts your next life. A trainer that is told ends likewise."""

    reason: str


class Lost(Message, frozen=True, kw_only=True, tag="lost"):
    """To a trainer: do not wait for this replica any longer."""

    replica_id: str


class Try(Message, frozen=True, kw_only=True, tag="try"):
    """To a trainer: do you reach these peers? ``doors``: those of each."""

    number: int
    doors: list[list[str]]


class Join(Message, frozen=True, kw_only=True, tag="join"):
    """To a trainer: all that was to be said to a new one is said, and it reaches its peers."""


class Ask(Message, frozen=True, kw_only=True, tag="ask"):
    """To a trainer: how far are you?"""


class StopAfter(Message, frozen=True, kw_only=True, tag="stop_after"):
    """To a trainer: commit nothing beyond update ``step``, and end."""

    step: int


class Made(Message, frozen=True, kw_only=True, tag="made"):
    """To a trainer: the job has made update ``step``; a state from before it is no state to go on from."""

    step: int


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """All that a trainer must know: the job, and its own place in it. Goes through Monarch, not over a connection."""

    job: Job
    worker: Worker
    lighthouse: str


FromMember = Worker | Trainer | Beat | Tried | Place | At | Finished
FromController = Exit | Lost | Try | Join | Ask | StopAfter | Made | Place
_to_member = msgspec.json.Decoder(FromController)
_to_controller = msgspec.json.Decoder(FromMember)


def encode(message: Message) -> bytes:
    """One line, newline included."""
    return msgspec.json.encode(message) + b"\n"


def from_member(line: bytes) -> FromMember:
    """Raises msgspec.ValidationError or DecodeError for anything else."""
    return _to_controller.decode(line)


def parse_address(text: str) -> tuple[str, int]:
    """``host:port``; ValueError when it is not."""
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def keep_alive(connection: socket.socket) -> None:
    """Notice a peer that is gone without a word, and one that does not take what we send."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_PAUSE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, CUT_AFTER_S * 1000)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Link(threading.Thread):
    """A member's side: stays connected to the controller, says hello each time, hands on what the controller says.

    ``hello`` makes the first line of every connection; ``told`` is called on this thread. The name of the controller
    is resolved anew for every connection.
    """

    def __init__(self, controller: str, hello: Callable[[], Message], told: Callable[[FromController], None]) -> None:
        super().__init__(name="controller-link", daemon=True)
        self._address = parse_address(controller)
        self._hello = hello
        self._told = told
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._last_words: list[Message] = []

    def run(self) -> None:
        pause_s = RETRY_S_MIN
        while True:
            try:
                with socket.create_connection(self._address, timeout=CONNECT_TIMEOUT_S) as connection:
                    self._converse(connection)
                    pause_s = RETRY_S_MIN
            except (OSError, msgspec.DecodeError) as error:
                log.debug("no controller at %s: %s", self._address, error)
            with self._lock:
                self._connection = None
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_S_MAX)

    def send(self, message: Message) -> None:
        """Send now, if connected; a connection that just broke is this thread's business, not the caller's."""
        with self._lock, contextlib.suppress(OSError):
            if self._connection is not None:
                self._connection.sendall(encode(message))

    def keep_saying(self, message: Message) -> None:
        """Send now and again after every reconnection: a controller that restarts must learn it too."""
        with self._lock:
            self._last_words.append(message)
        self.send(message)

    def _converse(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        keep_alive(connection)
        with self._lock:
            connection.sendall(encode(self._hello()) + b"".join(encode(word) for word in self._last_words))
            self._connection = connection
        with connection.makefile("rb") as lines:
            for line in lines:
                self._told(_to_member.decode(line))
