"""A real Prometheus server for the length of a test, on a free port of loopback, with the rules of `dashboards/`."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.metrics.queries import FOLDER

PATIENCE_S = 60.0
SCRAPE = "2s"


def needed(program: str) -> str:
    """Where a program is; the test is skipped when it is not there."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed: apt-get install prometheus")
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


class Prometheus:
    """The server's HTTP API."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.began_s = time.time()

    def get(self, path: str, **arguments: str) -> Any:
        query = urllib.parse.urlencode(arguments)
        with urllib.request.urlopen(f"{self.url}{path}?{query}", timeout=PATIENCE_S) as answer:
            return json.load(answer)["data"]

    def series(self, match: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.get("/api/v1/series", **{"match[]": match, **self._span()})
        return found

    def values_of(self, label: str, match: str) -> list[str]:
        found: list[str] = self.get(f"/api/v1/label/{label}/values", **{"match[]": match, **self._span()})
        return found

    def over_time(self, expr: str) -> list[dict[str, Any]]:
        """What a query gave at any second since the server began."""
        found: list[dict[str, Any]] = self.get("/api/v1/query_range", query=expr, step="1", **self._span())["result"]
        return found

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=PATIENCE_S) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    def _span(self) -> dict[str, str]:
        return {"start": str(self.began_s), "end": str(time.time() + 1.0)}


@contextmanager
def running(targets: list[int]) -> Iterator[Prometheus]:
    """The server, scraping those ports of loopback; it is ended and its data are removed whatever happens."""
    program = needed("prometheus")
    with tempfile.TemporaryDirectory(prefix="torchchaos-prometheus-") as folder:
        port = free_port()
        (Path(folder) / "prometheus.yml").write_text(yaml.safe_dump(_config(targets)))
        command = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
        with open(f"{folder}/log", "wb") as log:
            server = subprocess.Popen(  # The kernel ends it should this process die.
                ["setpriv", "--pdeathsig", "KILL", *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        try:
            prometheus = Prometheus(port)
            await_true(prometheus.ready, lambda: Path(folder, "log").read_text())
            yield prometheus
        finally:
            server.kill()
            server.wait()


def await_true(condition: Callable[[], bool], said: Callable[[], str]) -> None:
    """Ask again and again, bounded; `said` tells what is known when it stays false."""
    ends_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends_s, said()
        time.sleep(0.1)


def _config(targets: list[int]) -> dict[str, Any]:
    addresses = [f"127.0.0.1:{port}" for port in targets]
    return {
        "global": {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE},
        "rule_files": [str(FOLDER / "rules.yaml")],
        "scrape_configs": [{"job_name": "torchchaos", "static_configs": [{"targets": addresses}]}],
    }
