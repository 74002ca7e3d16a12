"""The server of the metrics: on loopback, closed with the run, and the last word reaches who came for it before."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from queue import Queue

import pytest

from chaos.metrics.fold import Metrics
from chaos.metrics.serve import PATIENCE_S_MAX, PATIENCE_S_MIN, Visits, exporting, parsed, serving
from chaos.model.errors import BadInput
from tests.unit.metrics.test_fold import told
from tests.unit.monitors.journals import steady

PATIENCE_S = 30.0


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        text: str = answer.read().decode()
    return text


@pytest.mark.parametrize("address", ["9464", "localhost", ":", ":http", ":70000", "", "host:-1"])
def test_an_address_without_a_port_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match=r"names no port; type :9464, or HOST:9464") as refused:
        parsed(address)
    assert repr(address) in str(refused.value)


def test_loopback_unless_an_address_is_given() -> None:
    assert parsed(":9464") == ("127.0.0.1", 9464)
    assert parsed("10.0.0.7:9464") == ("10.0.0.7", 9464)


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(BadInput, match=f"--metrics :{port} cannot be served: Address already in use; type another"),
            exporting(f":{port}", print),
        ):
            pytest.fail("it must not be served")


def test_a_foreign_address_is_refused() -> None:
    with pytest.raises(BadInput, match="cannot be served"), exporting("192.0.2.1:0", print):
        pytest.fail("it must not be served")


def test_the_registry_is_served_until_the_end() -> None:
    metrics = Metrics()
    with serving(metrics.registry, ":0") as (url, visits):
        told(steady(), metrics)
        assert url.startswith("http://127.0.0.1:")
        assert get(url) == metrics.text()
        assert visits.begun == 1
    with pytest.raises(urllib.error.URLError, match="refused"):
        get(url)


def test_nothing_is_served_without_an_address() -> None:
    with exporting(None, pytest.fail) as metrics:
        assert metrics is None


def test_who_came_before_sees_the_last_word() -> None:
    seen: Queue[str] = Queue()
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if "last scrape" in text:
            threading.Thread(target=lambda: seen.put(get(said[0].rpartition(" ")[2]))).start()

    with exporting(":0", say) as metrics:
        assert metrics is not None
        assert "torchchaos_step{" not in get(said[0].rpartition(" ")[2])
        told(steady(), metrics)
    assert 'torchchaos_step{experiment="a-run"} 30.0' in seen.get(timeout=PATIENCE_S)
    assert f"waiting up to {PATIENCE_S_MAX:.0f} s" in said[1]


def test_nobody_is_waited_for_who_never_came() -> None:
    said: list[str] = []
    with exporting(":0", said.append):
        pass
    assert len(said) == 1


def test_patience_is_as_long_as_the_pace_of_visits() -> None:
    visits = Visits()
    assert visits.patience_s == PATIENCE_S_MAX
    for _ in range(2):
        with visits.visit():
            pass
    assert visits.patience_s == PATIENCE_S_MIN


def test_a_visit_that_began_before_is_not_the_last() -> None:
    visits = Visits()
    with visits.visit():
        waiting = threading.Thread(target=visits.await_later, args=(visits.begun,))
        waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    with visits.visit():
        pass
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
