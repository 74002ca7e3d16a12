"""Shows a folder of runs in a browser: `chaos serve runs/`.

On loopback unless told otherwise, and read only: nothing but the folder's reports, records, journals and logs can be
reached, whatever path or link is tried. Everything but our own pages is sent as plain text, and no page may run a
script. A run that has no report yet is told from its journal as it stands.
"""

from __future__ import annotations

import shutil
import socket
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from chaos.check import PLAN
from chaos.model.errors import BadInput
from chaos.model.gate import RECORD
from chaos.report import compare, listing, page, record
from chaos.report.page import environment

LOOPBACK = "127.0.0.1"
REQUEST_S_MAX = 10.0
SHOWN = frozenset({".html", ".json", ".jsonl", ".log", ".md", ".txt", ".xml"})
"""Kinds of files that are sent; others, such as disks of pods, are not there."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; frame-ancestors 'none'"
HTML = "text/html; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"


class Server(ThreadingHTTPServer):
    """Answers each request in a thread that ends with the process. Raises BadInput when it cannot be had."""

    daemon_threads = True

    def __init__(self, root: Path, host: str, port: int) -> None:
        if not root.is_dir():
            raise BadInput(f"{root} is not a folder; type the one that holds your runs")
        self.root = root.resolve()
        self.host = host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise BadInput(f"{host}:{port} cannot be served: {error}; type --port 0 for any that is free") from None

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.server_port}/"

    def server_bind(self) -> None:
        """Bind, without asking the name service who this is, which can take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.host, self.server_address[1]

    def knows(self, host: str) -> bool:
        """Whether a request meant this server. A foreign page that lets its name lead to loopback is refused."""
        name = urlsplit(f"//{host}").hostname or ""
        return not _loopback(self.host) or name in (self.host, "localhost") or _loopback(name)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who leaves in the middle of an answer is no news; what is wrong here is."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Refused(Exception):
    """There is nothing to show, and why."""


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_S_MAX
    server_version, sys_version = "torchchaos", ""
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Visits are no news."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        try:
            if not self.server.knows(self.headers.get("Host", "")):
                raise _Refused("this server is asked for by another name")
            self._answer(unquote(asked.path), parse_qs(asked.query))
        except (_Refused, BadInput) as why:
            self._send(f"{why}\n", PLAIN, HTTPStatus.NOT_FOUND)

    def _answer(self, path: str, query: dict[str, list[str]]) -> None:
        root = self.server.root
        if path == "/":
            text = environment().get_template("listing.html").render(listing=listing.read(root), root=root)
            self._send(text, HTML)
            return
        if path == "/compare":
            chosen = [self._within(one) for one in query.get("run", [])]
            if len(chosen) != 2:
                raise _Refused("choose two runs, not more and not fewer")
            one, other = sorted(chosen, key=lambda folder: folder.name)
            self._send(compare.render(compare.Comparison(record.read(one), record.read(other))), HTML)
            return
        target = self._within(path)
        if target.is_dir():
            self._folder(target, path)
        elif not target.exists() and target.name == page.NAME and (target.parent / PLAN).is_file():
            self._send(page.render(record.read(target.parent)), HTML)
        elif target.is_file() and target.suffix in SHOWN:
            self._file(target)
        else:
            raise _Refused("there is no such run, gate or file")

    def _within(self, path: str) -> Path:
        """The place that a path leads to, all links followed. Refused unless it is inside the folder of runs."""
        try:
            target = (self.server.root / path.lstrip("/")).resolve()
            there = target.exists() or target.parent.is_dir()
        except (ValueError, OSError, RuntimeError):
            raise _Refused("this is no path") from None
        if not there or not target.is_relative_to(self.server.root):
            raise _Refused("there is no such run, gate or file")
        return target

    def _folder(self, folder: Path, path: str) -> None:
        gate = listing.gate_in(folder) if (folder / RECORD).is_file() else None
        if gate is not None:
            self._send(page.render_gate(gate, quote(f"/{folder.relative_to(self.server.root)}/")), HTML)
        elif (folder / PLAN).is_file():
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", quote(f"/{folder.relative_to(self.server.root)}/{page.NAME}"))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            raise _Refused(f"{path} holds no run and no gate")

    def _file(self, path: Path) -> None:
        ours = path.name in (page.NAME, page.GATE)
        with path.open("rb") as file:
            self._head(HTML if ours else PLAIN, path.stat().st_size, HTTPStatus.OK)
            if self.command != "HEAD":
                shutil.copyfileobj(file, self.wfile)

    def _send(self, text: str, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        body = text.encode()
        self._head(kind, len(body), status)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, kind: str, length: int, status: HTTPStatus) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(length)),
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
        ):
            self.send_header(name, value)
        self.end_headers()
