"""Talks to the API server: plain objects in and out, every wait bounded, what goes wrong in one sentence.

The `kubernetes` package finds the server and who we are; its typed models are not used, because manifests read better
as what they are. Requests run in worker threads; a stream ends at once when its context does.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import anyio
import urllib3
from anyio import from_thread, to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from chaos.model.errors import BadInput

Object = dict[str, Any]
See = Callable[[Object], None]

CONNECT_S = 5.0
ANSWER_S = 10.0
SILENCE_S = 30.0
"""A stream that says nothing for so long is taken for broken, and opened again."""
WATCH_S = 60
RETRY_S = 0.5
PAUSE_S = 0.05
"""Between two watches, so that a server that ends each at once is not run over."""
CONNECTIONS_MAX = 600
"""A run of 250 members follows as many logs."""

_KEEPALIVE = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]
"""A server that is gone without a word ends a stream within seconds."""

log = logging.getLogger(__name__)


class KubeError(Exception):
    """The API server said no, or nothing; `status` is its HTTP status, 0 when it did not answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass
class _Told:
    """The objects of one place as they were last told of, and up to which version of the place."""

    seen: See
    gone: See
    version: str = ""
    """Empty while it is not known where to go on."""
    _known: dict[str, Object] = field(default_factory=dict)

    def list(self, answer: Object) -> None:
        """Take in all that there is now."""
        found = {item["metadata"]["uid"]: item for item in answer["items"]}
        for uid in self._known.keys() - found.keys():
            self.gone(self._known.pop(uid))
        for uid, item in found.items():
            if uid not in self._known or _version(self._known[uid]) != _version(item):
                self._known[uid] = item
                self.seen(item)
        self.version = _version(answer)

    def take(self, kind: str, item: Object) -> None:
        """Take in an event of a watch."""
        if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            self.version = ""  # An error: the server does not know that version any more.
            return
        self.version = _version(item)
        if kind == "DELETED":
            self._known.pop(item["metadata"]["uid"], None)
            self.gone(item)
        elif kind != "BOOKMARK":
            self._known[item["metadata"]["uid"]] = item
            self.seen(item)


class Kube:
    """One API server, as one user."""

    def __init__(self, configuration: Any) -> None:
        from kubernetes.client import ApiClient  # Takes half a second, which other commands need not spend.

        configuration.socket_options = _KEEPALIVE
        configuration.connection_pool_maxsize = CONNECTIONS_MAX
        configuration.retries = False
        self.host = str(configuration.host)
        self._configuration = configuration
        self._pool = ApiClient(configuration).rest_client.pool_manager
        self._threads = anyio.CapacityLimiter(CONNECTIONS_MAX)

    async def get(self, path: str, **query: object) -> Object:
        return await self.ask("GET", path, query=query)

    async def silent(self, path: str, within_s: float, **query: object) -> bool:
        """Whether nothing is to be had there in time, or the server itself cannot reach what it is asked for."""
        try:
            _read(await self._run(partial(self._request, "GET", path, None, query, "", within_s)))
        except KubeError as error:
            return error.status in (0, *range(500, 600))
        return False

    async def create(self, path: str, body: Object) -> Object:
        return await self.ask("POST", path, body)

    async def merge(self, path: str, body: Object) -> Object:
        return await self.ask("PATCH", path, body, kind="application/merge-patch+json")

    async def apply(self, path: str, body: Object) -> Object:
        """Server-side apply, as owner `torchchaos`: there afterwards, whether or not it was before."""
        query = {"fieldManager": "torchchaos", "force": "true"}
        return await self.ask("PATCH", path, body, query=query, kind="application/apply-patch+yaml")

    async def delete(self, path: str, options: Object | None = None) -> None:
        """Gone already is as good as deleted."""
        try:
            await self.ask("DELETE", path, options)
        except KubeError as error:
            if error.status != 404:
                raise

    async def ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        query: Mapping[str, object] | None = None,
        kind: str = "application/json",
    ) -> Object:
        """One request and its answer. KubeError."""

        def exchange() -> bytes:
            return _read(self._request(method, path, body, query or {}, kind))

        answer: Object = json.loads(await self._run(exchange) or b"{}")
        return answer

    @asynccontextmanager
    async def lines(self, path: str, **query: object) -> AsyncIterator[MemoryObjectReceiveStream[list[bytes]]]:
        """The answer line by line as it comes, several lines at a time where they come together. KubeError."""
        with anyio.CancelScope(shield=True):  # The answer of a request that was made has to be closed.
            response = await self._run(partial(self._request, "GET", path, None, query, ""))
        send, receive = anyio.create_memory_object_stream[list[bytes]](max_buffer_size=16)
        with closing(response), send, receive:
            if response.connection is not None:
                response.connection.sock.settimeout(SILENCE_S)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(to_thread.run_sync, _pump, response, send, limiter=self._threads))
                try:
                    yield receive
                finally:
                    receive.close()
                    _hang_up(response)

    async def follow(self, path: str, seen: See, gone: See, query: Mapping[str, object] | None = None) -> None:
        """Tell every object there is and every change of one, as long as this runs; each that goes, as it was last.

        A watch that ends or breaks is taken up where it stood. Only what the server has forgotten by then is listed
        afresh, and what happened meanwhile is told as its sum. A server that does not answer is asked again for ever:
        the caller bounds its wait for what it needs.
        """
        told = _Told(seen, gone)
        while True:
            try:
                if not told.version:
                    told.list(await self.ask("GET", path, query=query))
                await self._watch(path, query or {}, told)
                await anyio.sleep(PAUSE_S)
            except KubeError as error:
                log.info("%s: %s", path, error)
                if error.status == HTTPStatus.GONE:
                    told.version = ""
                await anyio.sleep(RETRY_S)

    async def _watch(self, path: str, query: Mapping[str, object], told: _Told) -> None:
        about = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_S}
        async with self.lines(path, **query, **about, resourceVersion=told.version) as lines:
            async for several in lines:
                for line in several:
                    event = json.loads(line)
                    told.take(event["type"], event["object"])
                    if not told.version:
                        return

    async def _run(self, work: Callable[[], Any]) -> Any:
        return await to_thread.run_sync(work, limiter=self._threads)

    def _request(
        self,
        method: str,
        path: str,
        body: Object | None,
        query: Mapping[str, object],
        kind: str,
        answer_s: float = ANSWER_S,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": "torchchaos"} | ({"Content-Type": kind} if kind else {})
        url = f"{self.host}{path}" + (f"?{urlencode(query)}" if query else "")
        token = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        data = None if body is None else json.dumps(body).encode()
        wait = urllib3.Timeout(connect=CONNECT_S, read=answer_s)
        try:
            response: urllib3.BaseHTTPResponse = self._pool.request(
                method, url, body=data, headers=headers, timeout=wait, preload_content=False
            )
        except urllib3.exceptions.HTTPError as error:
            raise KubeError(0, f"{self.host} does not answer: {error}") from error
        if response.status >= 400:
            raise KubeError(response.status, f"{method} {path}: {_message(_read(response))}")
        return response


def connect(context: str | None = None) -> Kube:
    """The API server of a kubeconfig's context; inside a pod, without a kubeconfig, that of its own cluster."""
    from kubernetes import client, config

    configuration = client.Configuration()
    try:
        config.load_kube_config(context=context, client_configuration=configuration)
    except config.ConfigException as error:
        if context is None:
            with suppress(config.ConfigException):
                config.load_incluster_config(client_configuration=configuration)
                return Kube(configuration)
        raise BadInput(f"no cluster to talk to: {error}; set KUBECONFIG, or type --context NAME") from None
    return Kube(configuration)


def _version(item: Object) -> str:
    return str(item["metadata"]["resourceVersion"])


def _read(response: urllib3.BaseHTTPResponse) -> bytes:
    try:
        data: bytes = response.data
        return data
    except urllib3.exceptions.HTTPError as error:
        raise KubeError(0, f"the answer broke off: {error}") from error
    finally:
        response.release_conn()


def _message(answer: bytes) -> str:
    """What the server says of an error; the text itself when it is no Status object."""
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        return answer.decode(errors="replace").strip()


def _pump(response: urllib3.BaseHTTPResponse, send: MemoryObjectSendStream[list[bytes]]) -> None:
    """In a thread: hand lines over until the server or the reader is done. What breaks off is only over."""
    partial_line = b""
    try:
        with suppress(urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError):
            for chunk in response.stream(None, decode_content=False):
                *whole, partial_line = (partial_line + chunk).split(b"\n")
                if whole:
                    from_thread.run(send.send, whole)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        with suppress(RuntimeError):
            from_thread.run_sync(send.close)


def _hang_up(response: urllib3.BaseHTTPResponse) -> None:
    """End a read that goes on in another thread."""
    with suppress(ValueError, RuntimeError, OSError):
        response.shutdown()
