"""Beats that are sent to a real lighthouse on behalf of a replica."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from training.lighthouse import Voucher, _torchft_extension, start
from training.process import free_port
from training.settings import Settings

HOST = "127.0.0.1"
SETTINGS = Settings(heartbeat_timeout_ms=400, join_timeout_ms=20_000, quorum_tick_ms=20)
PATIENCE = timedelta(seconds=20)


@contextmanager
def beating(voucher: Voucher, *replica_ids: str) -> Iterator[None]:
    """While this is open."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(0.1):
            voucher.vouch(replica_ids)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(("vouched", "members"), [(("a", "b"), ["a", "b"]), (("a",), ["a"])])
def test_a_replica_that_is_vouched_for_is_waited_for(vouched: tuple[str, ...], members: list[str]) -> None:
    address = f"{HOST}:{free_port(HOST)}"
    server = start(address, 1, SETTINGS)
    voucher = Voucher(f"http://{address}", SETTINGS)
    client = _torchft_extension().LighthouseClient(f"http://{address}", PATIENCE)

    def ask(replica_id: str) -> Any:
        return client.quorum(replica_id, PATIENCE, address=replica_id, store_address="s", step=1, world_size=1)

    voucher.vouch(["a", "b"])
    with ThreadPoolExecutor() as pool, beating(voucher, *vouched):
        first = pool.submit(ask, "a")
        if len(members) > 1:
            assert not threading.Event().wait(3 * SETTINGS.heartbeat_timeout_ms / 1000) and not first.done()
            pool.submit(ask, "b")
        assert sorted(member.replica_id for member in first.result().participants) == members
    server.shutdown()


SERVE = "import sys, threading; from training import lighthouse as l; from training.settings import Settings\n"
SERVE += "there = l.start(sys.argv[1], 1, Settings()); print('there', flush=True); threading.Event().wait()"


def test_a_lighthouse_that_is_not_there_hangs_or_comes_back_is_told_again() -> None:
    address = f"{HOST}:{free_port(HOST)}"
    voucher = Voucher(f"http://{address}", SETTINGS)
    assert not voucher.vouch(["a"])
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", SERVE, address], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None and server.stdout.readline() == "there\n"
                assert voucher.vouch(["a"])
                os.kill(server.pid, signal.SIGSTOP)
                assert not voucher.vouch(["a"])
            finally:
                server.kill()
