"""Shows the metrics of this process over HTTP while it runs: `chaos run --metrics :9464`.

On loopback unless an address says otherwise: whoever can reach it can read the names of the job's members.
A run ends when Prometheus is not looking, so the last word would be lost. Whoever came for metrics before is waited for
once more: for twice the time between two visits, and at most a minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from chaos.metrics.fold import Metrics
from chaos.model.errors import BadInput

LOOPBACK = "127.0.0.1"
VISIT_PATIENCE = 2.0
"""Prometheus comes at an even pace; the wait for it ends at so many times that, within these bounds."""
PATIENCE_S_MIN = 10.0
PATIENCE_S_MAX = 60.0
REQUEST_S_MAX = 5.0


class Visits:
    """When somebody came for metrics, by the monotonic clock. Used by several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.begun = 0
        self._answered = 0
        """The newest visit that was answered."""
        self._times_s: list[float] = []
        """Of the last two visits."""

    @contextmanager
    def visit(self) -> Iterator[None]:
        with self._changed:
            self.begun += 1
            number = self.begun
            self._times_s = [*self._times_s[-1:], time.monotonic()]
        yield
        with self._changed:
            self._answered = max(self._answered, number)
            self._changed.notify_all()

    @property
    def patience_s(self) -> float:
        """How long the next one is worth waiting for."""
        if len(self._times_s) < 2:
            return PATIENCE_S_MAX
        pace_s = self._times_s[1] - self._times_s[0]
        return min(max(PATIENCE_S_MIN, VISIT_PATIENCE * pace_s), PATIENCE_S_MAX)

    def await_later(self, begun: int) -> None:
        """Wait until one that began after so many others is answered."""
        with self._changed:
            self._changed.wait_for(lambda: self._answered > begun, self.patience_s)


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request in a thread of its own, and is closed once the last answer is out."""


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_S_MAX

    def log_message(self, format: str, *args: Any) -> None:
        """Visits are no news."""


def parsed(address: str) -> tuple[str, int]:
    """Host and port of `:9464` or `10.0.0.7:9464`. Raises BadInput."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"--metrics {address!r} names no port; type :9464, or HOST:9464 to be seen from elsewhere")
    return host or LOOPBACK, int(port)


@contextmanager
def exporting(address: str | None, say: Callable[[str], None]) -> Iterator[Metrics | None]:
    """Metrics that are served for as long as the context is open, and until who came for them has seen the last.

    None when there is no address. BadInput when it cannot be had.
    """
    if address is None:
        yield None
        return
    metrics = Metrics()
    with serving(metrics.registry, address) as (url, visits):
        say(f"metrics at {url}")
        yield metrics
        begun = visits.begun
        if begun:
            with suppress(KeyboardInterrupt):
                say(f"waiting up to {visits.patience_s:.0f} s for the last scrape; Ctrl-C ends that")
                visits.await_later(begun)


@contextmanager
def serving(registry: CollectorRegistry, address: str) -> Iterator[tuple[str, Visits]]:
    """Serve for as long as the context is open: the URL, and the visits. BadInput when the address cannot be had."""
    host, port = parsed(address)
    visits = Visits()
    metrics = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with visits.visit():
            answer: Iterable[bytes] = metrics(environ, start_response)
        return answer

    try:
        server = make_server(host, port, app, _Server, _Handler)
    except OSError as error:
        raise BadInput(
            f"--metrics {address} cannot be served: {error.strerror}; type another port, or :0 for any that is free"
        ) from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="metrics")
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}/metrics", visits
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
