"""What is done to RDMA ports is met by RDMA traffic, and by none afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chaos.agent.client import Refused
from chaos.agent.linux.meter import Meter
from chaos.agent.wire import State
from chaos.api import Outcome
from chaos.model.injections import PortDown, PortGone, PortShape
from tests.agent.cases import TARGET, difference, look, no_rdma
from tests.agent.grounds import RAILS, Grounds
from tests.agent.paths import Path, judged
from tests.agent.pods import Agent, Pod, run_in
from tests.agent.rails import measured, send_by_tcp

pytestmark = pytest.mark.kernel
WRITE = ("ib_write_bw", "-s", "4096", "-n", "50")
LATENCY = ("ib_write_lat", "-s", "8", "-n", "20")


@pytest.fixture
def rails(grounds: Grounds) -> Pod:
    if no_rdma():
        pytest.skip(f"needs {no_rdma()}")
    return grounds[RAILS]


def test_a_port_that_is_down_carries_nothing_and_one_that_is_up_again_does(agent: Agent, rails: Pod) -> None:
    assert measured(rails, *WRITE)
    evidence = agent.grant(rails, PortDown(TARGET, 0))
    assert "rail 0: the port of rxe_a is DOWN" in evidence
    assert measured(rails, *WRITE) is None
    reply = agent.release()
    assert reply.state is State.RELEASED and "the port of rxe_a is ACTIVE" in reply.evidence
    assert measured(rails, *WRITE)


def test_delay_and_loss_change_the_figures(agent: Agent, rails: Pod) -> None:
    plain, fast = measured(rails, *LATENCY), measured(rails, *WRITE)
    assert plain and fast
    agent.grant(rails, PortShape(TARGET, 0, delay_ms=100))
    slow = measured(rails, *LATENCY)
    assert slow and slow[2] - plain[2] == pytest.approx(50_000, rel=0.2), "half of a round trip at least, in us"
    agent.release()
    agent.grant(rails, PortShape(TARGET, 0, loss_percent=10))
    lossy = measured(rails, *WRITE)
    assert lossy is None or lossy[3] < fast[3] / 2
    agent.release()
    assert measured(rails, *WRITE)


def test_a_device_that_is_gone_comes_back_and_works(agent: Agent, rails: Pod) -> None:
    was = look(rails)
    evidence = agent.grant(rails, PortGone(TARGET, 0))
    assert "ra has left with the port of rxe_a, 1 ports are left" in evidence
    assert "ra@" not in run_in(rails.main.pid, "ip", "link") and "rxe_a" not in run_in(rails.main.pid, "rdma", "link")
    agent.crash()
    assert not difference(was, look(rails))
    assert measured(rails, *WRITE)


def test_rails_that_are_not_there(agent: Agent, grounds: Grounds) -> None:
    if not no_rdma():
        with pytest.raises(Refused, match=r"there is no rail 7 in replica-0; there are: 0 \(rxe_a\), 1 \(rxe_b\)"):
            agent.grant(grounds[RAILS], PortDown(TARGET, 7))
    refusal = "there is no RDMA device here" if no_rdma() else "rxe_a, rxe_b can be seen here, but their net devices"
    with pytest.raises(Refused, match=refusal):
        agent.grant(grounds["pod"], PortDown(TARGET))
    assert not agent.entries()


def test_bytes_are_told_by_the_path_that_they_took(grounds: Grounds, rails: Pod) -> None:
    """RDMA, TCP on the same link, and RDMA again."""
    meter = Meter(rails.network)
    meter.look()
    assert measured(rails, *WRITE)
    over_rdma, over_ethernet = meter.look()
    assert over_rdma and over_rdma > 50 * 4096 and over_ethernet < over_rdma / 10
    send_by_tcp(rails, 300_000)
    after = meter.look()
    assert after[0] is not None and after[0] - over_rdma < 10_000
    assert after[1] - over_ethernet > 300_000


@pytest.mark.parametrize(
    ("windows", "outcome"),
    [
        ((Path.RDMA, Path.RDMA), Outcome.PASS),
        ((Path.TCP, Path.TCP), Outcome.FAIL),
        ((Path.RDMA, Path.TCP, Path.RDMA), Outcome.FAIL),
    ],
    ids=["rdma", "tcp", "a fallback in between"],
)
def test_the_path_of_gradients_is_judged_by_what_was_counted(
    rails: Pod, windows: Sequence[Path], outcome: Outcome
) -> None:
    found, since_s = judged(rails, windows)
    assert found.outcome is outcome
    if outcome is Outcome.FAIL:
        assert f"from {since_s[windows.index(Path.TCP)]:.1f} s to" in found.reading
        assert found.measures["windows_over_tcp"] == 2 * windows.count(Path.TCP), "of two replicas"
