"""Two real managers at a real lighthouse, told whom not to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch
from torch.distributed import TCPStore

from training import lighthouse
from training.groups import LeavableGloo
from training.manager import AdvertisedTransport, ReplicaManager
from training.process import free_port
from training.settings import Settings
from training.waits import Waits

HOST = "127.0.0.1"
EXCHANGE = timedelta(seconds=30)
SOON_S = 10.0


class Replica:
    """A manager and the thread that it belongs to."""

    def __init__(self, name: str, address: str) -> None:
        self._thread = ThreadPoolExecutor(1)
        self.manager: ReplicaManager = self.do(lambda: self._build(name, address)).result()

    def _build(self, name: str, address: str) -> ReplicaManager:
        self._store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False, multi_tenant=True)
        waits = Waits()
        manager = ReplicaManager(
            leave_on_error=True,
            waits=waits,
            pg=LeavableGloo(EXCHANGE, waits),
            min_replica_size=1,
            load_state_dict=lambda _: None,
            state_dict=dict,
            use_async_quorum=True,
            init_sync=False,
            timeout=EXCHANGE,
            quorum_timeout=EXCHANGE,
            connect_timeout=EXCHANGE,
            rank=0,
            world_size=1,
            store_addr=HOST,
            store_port=self._store.port,
            lighthouse_addr=f"http://{address}",
            replica_id=name,
            hostname=HOST,
            checkpoint_transport=AdvertisedTransport(timeout=EXCHANGE, host=HOST),
        )
        manager.join()
        return manager

    def do(self, what: Callable[[], Any]) -> Future[Any]:
        return self._thread.submit(what)

    def step(self, before_exchange: Callable[[], None] = lambda: None) -> bool:
        """A try at an update; whether it was committed."""
        self.manager.start_quorum()
        before_exchange()
        self.manager.allreduce(torch.ones(4)).wait()
        return self.manager.should_commit()

    def lose(self, other: Replica) -> None:
        self.manager.lose(other.id)

    @property
    def id(self) -> str:
        return str(self.manager._logger._replica_id)

    def close(self) -> None:
        self.manager.shutdown(wait=False)
        self._thread.shutdown(wait=False)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Replica, Replica]]:
    """Two replicas in one group that has made an update."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    address = f"{HOST}:{free_port(HOST)}"
    server = lighthouse.start(address, 2, Settings())
    first, second = Replica("replica-0", address), Replica("replica-1", address)
    tries = [one.do(one.step) for one in (first, second)]
    assert all(one.result(SOON_S) for one in tries)
    yield first, second
    first.close()
    second.close()
    server.shutdown()


def test_an_exchange_with_one_that_is_lost_is_given_up_at_once(pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    second.do(second.manager.start_quorum)
    waiting = first.do(first.step)
    while not first.manager.waits.exchanging:
        threading.Event().wait(0.01)
    first.lose(second)
    assert waiting.result(SOON_S) is False


def test_one_that_was_lost_before_a_quorum_and_is_in_it_is_waited_for(pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    first.lose(second)
    tries = [one.do(one.step) for one in pair]
    assert [one.result(SOON_S) for one in tries] == [True, True]


def test_one_that_is_lost_between_quorum_and_exchange_is_not_waited_for(pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    second.do(second.manager.start_quorum)

    def lose_late() -> None:
        first.manager.wait_quorum()
        first.lose(second)

    assert first.do(lambda: first.step(lose_late)).result(SOON_S) is False


def test_a_stranger_that_is_lost_is_no_reason_to_leave(pair: tuple[Replica, Replica]) -> None:
    first, second = pair

    def lose_stranger() -> None:
        first.manager.lose("replica-7:u")

    tries = [first.do(lambda: first.step(lose_stranger)), second.do(second.step)]
    assert [one.result(SOON_S) for one in tries] == [True, True]


def test_a_state_from_before_what_the_job_has_made_is_no_state_to_go_on_from(pair: tuple[Replica, Replica]) -> None:
    for one in pair:
        one.manager.made_step = 9
    tries = [one.do(one.step) for one in pair]
    assert [one.result(SOON_S) for one in tries] == [False, False]
    error = pair[0].manager.errored()
    assert error is not None
    assert "made step 9" in str(error.original_exception)
