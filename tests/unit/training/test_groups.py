"""A group that is left: nobody waits in it, on either side."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from torch import ones
from torch.distributed import AllreduceOptions, TCPStore

from training.groups import LeavableGloo
from training.waits import Waits

TIMEOUT = timedelta(seconds=30)


@pytest.fixture(autouse=True)
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def exchange(group: LeavableGloo, ended: list[BaseException | None]) -> None:
    try:
        group.allreduce([ones(4)], AllreduceOptions()).wait()
    except RuntimeError as error:
        ended.append(error)
    else:
        ended.append(None)


def until_waiting(waits: Waits) -> None:
    ready = threading.Event()
    for _ in range(1000):
        if waits.exchanging:
            return
        ready.wait(0.01)
    pytest.fail("it does not wait")


def two(store: TCPStore) -> tuple[list[LeavableGloo], list[Waits]]:
    """Two members of a group."""
    waits = [Waits(), Waits()]
    groups = [LeavableGloo(TIMEOUT, one) for one in waits]
    where = f"127.0.0.1:{store.port}/test"
    making = [
        threading.Thread(target=group.configure, args=(f"{where}/1", "r", rank, 2, 1, 0, 1, [0, 1]))
        for rank, group in enumerate(groups)
    ]
    for thread in making:
        thread.start()
    for thread in making:
        thread.join(TIMEOUT.total_seconds())
    return groups, waits


def test_a_group_is_left_at_once_although_one_of_its_exchanges_cannot_be_ended() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, multi_tenant=True)
    (group, peer), _ = two(store)
    running = group.allreduce([ones(4)], AllreduceOptions())
    group._connections = frozenset()
    leaving = threading.Thread(target=group.abort)
    leaving.start()
    leaving.join(TIMEOUT.total_seconds() / 3)
    assert not leaving.is_alive(), "it waits for the exchange"
    peer.abort()
    with pytest.raises(RuntimeError):
        running.wait()


def test_a_wait_ends_when_the_group_is_left_and_a_peer_that_comes_late_waits_neither() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, multi_tenant=True)
    groups, waits = two(store)
    ended: list[BaseException | None] = []
    waiting = threading.Thread(target=exchange, args=(groups[0], ended))
    waiting.start()
    until_waiting(waits[0])
    groups[0].abort()
    waiting.join(TIMEOUT.total_seconds() / 3)
    assert not waiting.is_alive(), "still waiting"
    late = threading.Thread(target=exchange, args=(groups[1], ended))
    late.start()
    late.join(TIMEOUT.total_seconds() / 3)
    assert not late.is_alive(), "still waiting"
    assert all(isinstance(error, RuntimeError) for error in ended)
    assert store.check([]), "what was there before the group stays connected"
