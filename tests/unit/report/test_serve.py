"""The list of runs over HTTP: what is in the folder is shown, nothing else can be reached, and it ends with Ctrl-C."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from chaos.check import VERDICT, check
from chaos.model.errors import BadInput
from chaos.model.gate import RECORD, Gate, GateExperiment, GateRun
from chaos.model.verdict import Outcome
from chaos.report import page
from chaos.report.serve import LOOPBACK, POLICY, Server
from tests.conftest import CHAOS
from tests.golden import recorded
from tests.golden.recorded import lay_out

REPLY_S_MAX = 60.0
LOST = "20261129-190000-replica-lost"
STEADY = "20261129-200000-steady"
GATE = "20261129-210000-gate-small"
INNER = "20261129-210001-replica-lost"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A judged run with its reports, one that was never judged, a gate of one run, and a secret beside the folder."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.txt").write_text("secret")
    root = outside / "runs"
    lost = lay_out(recorded.load("replica-lost"), root / LOST)
    verdict = check(lost)
    (lost / VERDICT).write_bytes(msgspec.json.encode(verdict))
    page.write(lost)
    (lost / "evil.html").write_text("<script>alert(1)</script>")
    (lost / "disk.img").write_bytes(b"secret")
    (lost / "link.txt").symlink_to(outside / "secret.txt")
    (root / "away").symlink_to(outside)
    lay_out(recorded.load("steady"), root / STEADY)
    lay_out(recorded.load("replica-lost"), root / GATE / INNER)
    run = GateRun(INNER, 1, Outcome.FAIL, 48.3, ("<script>alert(2)</script>",))
    one = GateExperiment("replica-lost", "", "1", "job", 1, (run,))
    gate = Gate("small", "why", "1", Outcome.FAIL, True, "<b>it broke</b>", 0.9, 0.0, 48.3, {}, {}, (one,))
    (root / GATE / RECORD).write_bytes(msgspec.json.encode(gate))
    return root


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[Server]:
    with Server(runs, LOOPBACK, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


Reply = tuple[int, str, http.client.HTTPMessage]


def get(server: Server, path: str, host: str = "localhost", method: str = "GET") -> Reply:
    """One request, its path sent as it is."""
    connection = http.client.HTTPConnection(LOOPBACK, server.server_port, timeout=REPLY_S_MAX)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    reply = connection.getresponse()
    body = reply.read().decode()
    connection.close()
    return reply.status, body, reply.headers


def test_the_list_shows_runs_and_gates_the_newest_first_and_all_its_links_lead_somewhere(server: Server) -> None:
    status, html, headers = get(server, "/")
    assert status == 200 and headers["Content-Security-Policy"] == POLICY
    shown = re.findall(r'name="run" value="([^"]*)"', html)
    assert shown == [f"{GATE}/{INNER}", STEADY, LOST]
    assert "not judged yet" in html and "14.0 s" in html
    assert "gate small" in html and "&lt;b&gt;it broke" in html and "<b>it" not in html
    for link in set(re.findall(r'href="(/[^"]*)"', html)):
        assert get(server, link)[0] in (200, 302), link


def test_a_run_opens_its_report_and_one_without_is_told_from_its_journal(server: Server, runs: Path) -> None:
    status, _, headers = get(server, f"/{LOST}/")
    assert (status, headers["Location"]) == (302, f"/{LOST}/report.html")
    assert get(server, f"/{LOST}/report.html")[1] == (runs / LOST / "report.html").read_text()
    status, html, headers = get(server, f"/{STEADY}/report.html")
    assert status == 200 and "steady" in html and headers["Content-Type"].startswith("text/html")
    assert not (runs / STEADY / "report.html").exists()


def test_a_gate_shows_its_runs(server: Server) -> None:
    status, html, _ = get(server, f"/{GATE}/")
    assert status == 200 and f'href="/{GATE}/{INNER}/report.html"' in html
    assert "&lt;script&gt;alert(2)" in html and "<script" not in html


def test_the_page_in_a_gates_folder_is_shown_as_a_page(server: Server, runs: Path) -> None:
    (runs / GATE / "gate.html").write_text("<p>the page</p>")
    status, html, headers = get(server, f"/{GATE}/gate.html")
    assert status == 200 and html == "<p>the page</p>" and headers["Content-Type"].startswith("text/html")


def test_two_runs_that_are_ticked_are_compared(server: Server) -> None:
    status, html, _ = get(server, f"/compare?run={LOST}&run={STEADY}")
    assert status == 200 and "Two runs side by side" in html
    assert get(server, f"/compare?run={LOST}")[0] == 404
    assert get(server, f"/compare?run={LOST}&run=../outside")[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        f"/{LOST}/../../secret.txt",
        "//etc/passwd",
        "/%2fetc/passwd",
        "/etc/passwd",
        f"/{LOST}/link.txt",
        "/away/secret.txt",
        "/away/",
        f"/{LOST}/disk.img",
        "/%00",
        "/" + "a" * 5000,
        "/absent/report.html",
        "/compare?run=/etc&run=/etc",
    ],
)
def test_nothing_else_can_be_reached(server: Server, path: str) -> None:
    status, body, headers = get(server, path)
    assert status == 404
    assert "secret\n" not in body and body != "secret" and "root:" not in body
    assert headers["Content-Type"].startswith("text/plain")


def test_what_a_job_wrote_is_text_and_no_page(server: Server) -> None:
    for name in ("evil.html", "report.md", "journal.jsonl"):
        status, _, headers = get(server, f"/{LOST}/{name}")
        assert status == 200
        assert headers["Content-Type"].startswith("text/plain") and headers["X-Content-Type-Options"] == "nosniff"


def test_a_foreign_name_that_leads_here_is_refused(server: Server) -> None:
    assert get(server, "/", host=f"127.0.0.1:{server.server_port}")[0] == 200
    assert get(server, "/", host="evil.example")[0] == 404
    assert get(server, "/", host="")[0] == 404


def test_nothing_is_written(server: Server) -> None:
    assert get(server, "/", method="POST")[0] == 501
    assert get(server, f"/{LOST}/report.html", method="HEAD")[1] == ""


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="absent is not a folder"):
        Server(tmp_path / "absent", LOOPBACK, 0)
    with socket.create_server((LOOPBACK, 0)) as taken, pytest.raises(BadInput, match="--port 0"):
        Server(tmp_path, LOOPBACK, taken.getsockname()[1])


def test_ctrl_c_ends_it_in_order(runs: Path) -> None:
    command = [CHAOS, "serve", runs, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        line = serving.stdout.readline()
        port = int(re.findall(r"http://127\.0\.0\.1:(\d+)/", line)[0])
        held = socket.create_connection((LOOPBACK, port), timeout=REPLY_S_MAX)  # Says nothing, and holds nobody up.
        os.kill(serving.pid, signal.SIGINT)
        try:
            _, errors = serving.communicate(timeout=REPLY_S_MAX)
        finally:
            held.close()
            serving.kill()
    assert (serving.returncode, errors) == (0, "")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port))
