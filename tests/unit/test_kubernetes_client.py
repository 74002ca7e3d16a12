"""Following a place of the API server: nothing that happened is missed where a watch ends, breaks or is too old."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

import anyio
from kubernetes.client import Configuration

from chaos.platforms.kubernetes.client import Kube

PATIENCE_S = 20.0


def thing(state: str, version: int) -> dict[str, Any]:
    return {"metadata": {"uid": "a", "name": "a", "resourceVersion": str(version)}, "state": state}


def listing(version: int, *items: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"metadata": {"resourceVersion": str(version)}, "items": list(items)}]


def event(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": item}


@contextmanager
def answering(*answers: tuple[int, list[dict[str, Any]]]) -> Iterator[tuple[Kube, list[str | None]]]:
    """A server with these answers in turn, and the version that each request asked to go on from."""
    asked: list[str | None] = []

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, lines = answers[len(asked)] if len(asked) < len(answers) else (503, [])
            asked.append(parse_qs(urlparse(self.path).query).get("resourceVersion", [None])[0])
            body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{server.server_port}"
        yield Kube(configuration), asked
        server.shutdown()


def followed(kube: Kube) -> tuple[list[str], list[str]]:
    """The states that were seen until the thing went, and in which it went."""
    seen: list[str] = []
    gone: list[str] = []

    async def run() -> None:
        with anyio.move_on_after(PATIENCE_S) as scope:

            def went(item: dict[str, Any]) -> None:
                gone.append(item["state"])
                scope.cancel()

            await kube.follow("/things", lambda item: seen.append(item["state"]), went)

    anyio.run(run)
    return seen, gone


def test_what_happens_between_two_watches_is_told() -> None:
    later = [event("MODIFIED", thing("undone", 2)), event("DELETED", thing("undone", 3))]
    with answering((200, listing(1, thing("held", 1))), (200, []), (200, later)) as (kube, asked):
        assert followed(kube) == (["held", "undone"], ["undone"])
        assert asked == [None, "1", "1"]


def test_a_bookmark_is_where_to_go_on() -> None:
    mark = event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    with answering(
        (200, listing(1, thing("held", 1))), (200, [mark]), (200, [event("DELETED", thing("undone", 10))])
    ) as (
        kube,
        asked,
    ):
        assert followed(kube) == (["held"], ["undone"])
        assert asked == [None, "1", "9"]


def test_what_the_server_has_forgotten_is_listed_afresh() -> None:
    old = event("ERROR", {"kind": "Status", "code": 410})
    for forgotten in ((410, [{"kind": "Status", "code": 410}]), (200, [old])):
        with answering((200, listing(1, thing("held", 1))), forgotten, (200, listing(7))) as (kube, asked):
            assert followed(kube) == (["held"], ["held"])
            assert asked[:3] == [None, "1", None]


def test_a_server_that_fails_in_between_changes_nothing() -> None:
    gone = [event("DELETED", thing("undone", 3))]
    with answering((200, listing(1, thing("held", 1))), (500, []), (200, gone)) as (kube, asked):
        assert followed(kube) == (["held"], ["undone"])
        assert asked == [None, "1", "1"]
