"""Logs of pods, against a server that answers as the API server does: breaks are mended, nothing is told twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

import anyio
import pytest
from kubernetes.client import Configuration

from chaos.platforms.kubernetes import logs
from chaos.platforms.kubernetes.client import Kube
from chaos.platforms.kubernetes.logs import BEGINS, PodLog

PATH = "/api/v1/namespaces/n/pods/p/log"
WAIT_S = 20.0
KILLED = -9


@dataclass
class Log:
    """A container's log in the server's hands. Streams of it go on until it has ended."""

    lines: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    broken: bool = False
    """Whether a stream breaks off after what is there, although the container runs."""


@dataclass
class Node:
    """What the server knows of one pod: logs of the present container and the one before."""

    now: Log = field(default_factory=Log)
    before: Log | None = None
    asked: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def serving(node: Node) -> Iterator[Kube]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = {key: value[0] for key, value in parse_qs(urlparse(self.path).query).items()}
            node.asked.append(query)
            log = node.before if query.get("previous") == "true" else node.now
            if log is None:
                self.send_response(400)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.send([line for line in log.lines if line[:19] >= query.get("sinceTime", "")[:19]])
            if query.get("follow") == "true" and not log.broken:
                log.ended.wait(WAIT_S)
            self.wfile.write(b"0\r\n\r\n")

        def send(self, lines: list[str]) -> None:
            data = "".join(f"{line}\n" for line in lines).encode()
            if data:
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{server.server_port}"
        try:
            yield Kube(configuration)
        finally:
            node.now.ended.set()
            server.shutdown()


def line(second: int, text: str, fraction: str = ".5") -> str:
    return f"2026-01-01T00:00:{second:02}{fraction}Z {text}"


def pod(restarts: int = 0, **state: dict[str, Any]) -> dict[str, Any]:
    last = state.pop("last", {})
    return {"status": {"containerStatuses": [{"restartCount": restarts, "state": state, "lastState": last}]}}


class Told(list[Any]):
    """What a PodLog said: lines as text, ends as numbers; and when each end was learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.ends_mono_s: list[float] = []

    def end(self, status: int, at_mono_s: float) -> None:
        self.append(status)
        self.ends_mono_s.append(at_mono_s)

    async def until(self, *wanted: Any) -> None:
        with anyio.fail_after(WAIT_S):
            while self[: len(wanted)] != list(wanted) and len(self) < len(wanted):
                await anyio.sleep(0.005)
        assert self == list(wanted)


def followed(node: Node, story: Callable[[PodLog, Told], Awaitable[None]]) -> None:
    """Let a PodLog follow the node's pod while the story goes on."""

    async def run() -> None:
        told = Told()
        with serving(node) as kube:
            log = PodLog(
                kube,
                PATH,
                lambda line: told.append(line.decode()),
                told.end,
                lambda reason: told.append(f"lost: {reason}"),
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(log.run)
                await story(log, told)
                tasks.cancel_scope.cancel()

    anyio.run(run)


def test_a_stream_that_breaks_is_taken_up_and_no_line_is_told_twice():
    node = Node(Log([line(1, "a"), line(2, "b", ".1")], broken=True))

    async def story(log: PodLog, told: Told) -> None:
        log.update(pod(running={}))
        await told.until("a", "b")
        node.now.lines += [line(2, "c", ".15"), line(3, "d", "")]
        await told.until("a", "b", "c", "d")
        assert {query.get("sinceTime") for query in node.asked[1:]} <= {"2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"}

    followed(node, story)


def test_a_line_that_lies_behind_a_later_one_is_told():
    """What is written to standard output and to standard error gets its times apart."""
    node = Node(Log([line(1, "a", ".2"), line(1, "b", ".1")], broken=True))

    async def story(log: PodLog, told: Told) -> None:
        log.update(pod(running={}))
        await told.until("a", "b")
        node.now.lines += [line(2, "c", ".2"), line(1, "d", ".9")]
        await told.until("a", "b", "c", "d")

    followed(node, story)


def test_the_rest_is_read_before_the_end_is_told_although_the_stream_goes_on():
    node = Node(Log([line(1, "a")]))

    async def story(log: PodLog, told: Told) -> None:
        log.update(pod(running={}))
        await told.until("a")
        node.now.lines.append(line(2, "last words"))
        log.update(pod(terminated={"exitCode": 139}))
        await told.until("a", "last words", -11)

    followed(node, story)


def test_lives_in_one_pod_are_told_apart():
    node = Node(Log([line(1, "a")]))

    async def story(log: PodLog, told: Told) -> None:
        log.update(pod(running={}))
        await told.until("a")
        node.before, node.now = Log([line(1, "a"), line(2, "b")]), Log([line(3, "c")])
        log.update(pod(1, running={}, last={"terminated": {"exitCode": 3}}))
        await told.until("a", "b", 3, "c")

    followed(node, story)


def test_a_life_that_is_heard_before_the_status_tells_of_it_is_not_taken_for_the_one_before(monkeypatch):
    monkeypatch.setattr(logs, "STATUS_S", 0.01)
    first, second = (f"{BEGINS.decode()}, {number}" for number in (1, 2))
    node = Node(Log([line(1, first), line(2, "a")], broken=True))

    async def story(log: PodLog, told: Told) -> None:
        log.update(pod(running={}))
        await told.until(first, "a")
        node.before, node.now = Log([line(2, "a"), line(3, "b")]), Log([line(4, second), line(5, "c")], broken=True)
        asked = len(node.asked)
        with anyio.fail_after(WAIT_S):
            while len(node.asked) < asked + 3:
                await anyio.sleep(0.005)
        assert told == [first, "a"]
        log.update(pod(1, running={}, last={"terminated": {"exitCode": 0}}))
        await told.until(first, "a", "b", 0, second, "c")

    followed(node, story)


def test_an_end_is_of_its_own_time_although_the_status_tells_of_the_life_before_for_a_while():
    node = Node(Log([line(1, "a")]))

    async def story(log: PodLog, told: Told) -> None:
        log.update(pod(running={}))
        log.update(pod(terminated={"exitCode": 1}))
        await told.until("a", 1)
        log.update(pod(terminated={"exitCode": 1}))
        node.before, node.now = node.now, Log([line(3, "c")])
        log.update(pod(1, running={}, last={"terminated": {"exitCode": 1}}))
        await told.until("a", 1, "c")
        began_mono_s = time.monotonic()
        log.update(pod(1, terminated={"exitCode": 2}))
        await told.until("a", 1, "c", 2)
        assert told.ends_mono_s[0] < began_mono_s <= told.ends_mono_s[1]

    followed(node, story)


def test_a_life_that_was_over_before_it_was_seen_is_told():
    node = Node(Log([line(3, "c")]), before=Log([line(1, "a")]))

    async def story(log: PodLog, told: Told) -> None:
        log.update(pod(1, running={}, last={"terminated": {"exitCode": 1}}))
        await told.until("a", 1, "c")

    followed(node, story)


def test_lives_whose_logs_are_gone_are_told_as_lost():
    node = Node(Log([line(9, "d")]), before=Log([line(7, "c")]))

    async def story(log: PodLog, told: Told) -> None:
        log.update(pod(3, running={}, last={"terminated": {"exitCode": 1}}))
        await told.until("c", "lost: 2 lives ended before their logs could be read", 1, "d")

    followed(node, story)


@pytest.mark.parametrize("proven", [True, False])
def test_a_pod_whose_object_is_gone_lives_until_its_node_says_otherwise(proven):
    node = Node(Log([line(1, "a")]))

    async def story(log: PodLog, told: Told) -> None:
        log.update(pod(running={}))
        await told.until("a")
        if proven:
            await log.killed()
        else:
            log.gone()
            with anyio.move_on_after(0.3):
                await told.until("a", KILLED)
            assert told == ["a"], "the object is gone, its container is not"
            node.now.ended.set()
        await told.until("a", KILLED)

    followed(node, story)


def test_an_end_that_is_proven_while_the_log_cannot_be_had_is_told_at_once_and_the_rest_when_the_next_life_begins():
    node = Node(Log([line(1, "a")]))

    async def story(log: PodLog, told: Told) -> None:
        log.update(pod(running={}))
        await told.until("a")
        asked = len(node.asked)
        await log.killed(unread=True)
        await told.until("a", KILLED)
        assert len(node.asked) == asked, "nobody was asked"
        node.before, node.now = Log([line(1, "a"), line(2, "last words")]), Log([line(3, "c")])
        log.update(pod(1, running={}, last={"terminated": {"exitCode": 137}}))
        await told.until("a", KILLED, "last words", "c")

    followed(node, story)
