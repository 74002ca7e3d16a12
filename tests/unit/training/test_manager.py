"""Two real managers at a real lighthouse, told whom not to wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Any
from urllib.request import urlopen

import pytest
import torch
from torch.distributed import TCPStore
from torchft.coordination import LighthouseClient

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

    def __init__(self, name: str, address: str, host: str = HOST, connect: timedelta = EXCHANGE) -> None:
        self._thread = ThreadPoolExecutor(1)
        self.manager: ReplicaManager = self.do(lambda: self._build(name, address, host, connect)).result()

    def _build(self, name: str, address: str, host: str, connect: timedelta) -> ReplicaManager:
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
            quorum_retries=20,
            connect_timeout=connect,
            rank=0,
            world_size=1,
            store_addr=HOST,
            store_port=self._store.port,
            lighthouse_addr=f"http://{address}",
            replica_id=name,
            hostname=host,
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


class Lighthouse:
    """One that takes nobody for dead while another is being made."""

    def __init__(self) -> None:
        self.address = f"{HOST}:{free_port(HOST)}"
        self._start()

    def _start(self) -> None:
        self._server = lighthouse.start(self.address, 2, Settings(heartbeat_timeout_ms=2000))

    def restart(self) -> None:
        self.close()
        deadline_s = time.monotonic() + SOON_S
        while True:  # Until its port is free.
            try:
                return self._start()
            except RuntimeError:
                assert time.monotonic() < deadline_s
                time.sleep(0.01)

    def close(self) -> None:
        self._server.shutdown()


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lighthouse]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    house = Lighthouse()
    yield house
    house.close()


@pytest.fixture
def address(house: Lighthouse) -> str:
    return house.address


def until_asked(address: str, count: int) -> None:
    """Until so many living replicas have asked the lighthouse for the next quorum."""
    deadline_s = time.monotonic() + SOON_S
    while f"[{count}/".encode() not in urlopen(f"http://{address}/status").read():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.fixture
def pair(address: str) -> Iterator[tuple[Replica, Replica]]:
    """Two replicas in one group that has made an update."""
    first, second = Replica("replica-0", address), Replica("replica-1", address)
    tries = [one.do(one.step) for one in (first, second)]
    assert all(one.result(SOON_S) for one in tries)
    yield first, second
    first.close()
    second.close()


def test_a_replica_that_cannot_be_reached_by_its_name_reaches_its_own_server(address: str) -> None:
    """As one whose interface is down: what it asks of itself is not to wait for the network to come back."""
    apart, other = Replica("replica-0", address, host="nowhere.invalid"), Replica("replica-1", address)
    tries = [one.do(one.step) for one in (apart, other)]
    assert [one.result(SOON_S) for one in tries] == [True, True]
    apart.close()
    other.close()


def give_up(first: Replica, second: Replica) -> None:
    """The first waits in an exchange for the second, which is in the quorum, hears that it is lost, and leaves."""
    second.do(second.manager.start_quorum)
    waiting = first.do(first.step)
    while not first.manager.waits.exchanging:
        threading.Event().wait(0.01)
    first.lose(second)
    assert waiting.result(SOON_S) is False


def test_an_exchange_with_one_that_is_lost_is_given_up_at_once(pair: tuple[Replica, Replica]) -> None:
    give_up(*pair)


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


def test_one_that_is_lost_when_the_exchange_has_begun_and_nobody_waits_yet_is_not_waited_for(
    pair: tuple[Replica, Replica],
) -> None:
    first, second = pair
    second.do(second.manager.start_quorum)

    def step() -> bool:
        first.manager.start_quorum()
        begun = first.manager.allreduce(torch.ones(4))
        first.lose(second)
        begun.wait()
        return first.manager.should_commit()

    assert first.do(step).result(SOON_S) is False


@pytest.mark.parametrize("told", ["while the group is made", "before"])
def test_one_that_is_lost_when_the_group_is_to_be_made_is_not_waited_for(pair: tuple[Replica, Replica], told) -> None:
    first, second = pair
    give_up(first, second)  # so that the group is made anew
    meets, stays_away = threading.Event(), threading.Event()
    second.manager._pg.configure = lambda *_, **__: stays_away.wait(EXCHANGE.total_seconds())
    meet = first.manager._pg.making.begun

    def met() -> None:
        if told == "before":
            first.lose(second)
        meet()
        meets.set()

    first.manager._pg.making.begun = met
    tries = [first.do(first.step), second.do(second.step)]
    assert meets.wait(SOON_S)
    if told != "before":
        first.lose(second)
    assert tries[0].result(SOON_S) is False
    stays_away.set()


@pytest.mark.parametrize(
    ("who", "answered", "given_up"),
    [("donor", True, True), ("donor", False, True), ("another", False, True), ("another", True, False)],
)
def test_a_state_is_not_fetched_from_one_that_is_lost_or_that_may_have_no_group(
    pair: tuple[Replica, Replica], address: str, who: str, answered: bool, given_up: bool
) -> None:
    healing = Replica("replica-2", address)
    begun, never = threading.Event(), threading.Event()

    def stand_still(*_: object) -> None:
        healing.manager._checkpoint_transport.answered = answered
        begun.set()
        never.wait(EXCHANGE.total_seconds())

    healing.manager._checkpoint_transport._load_from_address = stand_still
    waiting = healing.do(healing.step)
    until_asked(address, 1)
    for replica in pair:
        replica.do(replica.step)
    assert begun.wait(SOON_S)
    for replica in pair:
        if (replica.id == healing.manager._donor) == (who == "donor"):
            healing.lose(replica)
    assert bool(wait([waiting], timeout=SOON_S if given_up else 1.0).done) == given_up
    never.set()
    healing.close()


def test_one_that_asked_for_a_quorum_and_died_is_not_waited_for_when_its_follower_is_there(address: str) -> None:
    first, follower = Replica("replica-0", address), Replica("replica-1", address)
    dead = LighthouseClient(f"http://{address}", connect_timeout=EXCHANGE)
    ask = ThreadPoolExecutor(1).submit
    asked = ask(dead.quorum, "replica-1:u", timeout=EXCHANGE, store_address=f"{HOST}:1", step=0, world_size=1)
    until_asked(address, 1)
    follows = follower.do(follower.step)
    until_asked(address, 2)
    tries = [first.do(first.step), follows]
    assert len(asked.result(SOON_S).participants) == 3
    assert [one.result(SOON_S) for one in tries] == [True, True]
    first.close()
    follower.close()


def test_a_lighthouse_that_counts_from_one_again_leads_nobody_to_where_others_met(house, pair) -> None:
    first, second = pair
    second.close()
    third = Replica("replica-2", house.address)
    for restart in (lambda: None, house.restart):
        restart()
        tries = [one.do(one.step) for one in (first, third)]
        assert [one.result(SOON_S) for one in tries] == [True, True]
    third.close()


def test_one_that_joins_while_the_lighthouse_is_away_waits_for_it(house: Lighthouse) -> None:
    house.close()
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(Replica, "replica-0", house.address, connect=timedelta(milliseconds=100))
        with pytest.raises(TimeoutError):
            joining.result(1.0)
        house.restart()
        joining.result(SOON_S).close()


def test_one_that_the_others_left_behind_meets_them_anew_under_the_number_they_had(house, pair) -> None:
    third = Replica("replica-2", house.address)
    joining = third.do(third.step)
    until_asked(house.address, 1)
    assert all(one.result(SOON_S) for one in (*[one.do(one.step) for one in pair], joining))
    house.restart()
    assert all(one.result(SOON_S) for one in [one.do(one.step) for one in pair])
    joining = third.do(third.step)
    until_asked(house.address, 1)
    assert all(one.result(SOON_S) for one in (*[one.do(one.step) for one in pair], joining))
    third.close()


def test_a_group_that_was_left_is_made_anew_under_the_number_it_had(house, pair) -> None:
    first, second = pair
    give_up(first, second)
    second.do(lambda: second.manager.allreduce(torch.ones(4)).wait())
    assert second.do(second.manager.should_commit).result(SOON_S) is False
    house.restart()
    tries = [one.do(one.step) for one in pair]
    assert [one.result(SOON_S) for one in tries] == [True, True]


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
