"""Whether a thread waits, works or does nothing, seen from another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from training.waits import Waits

WAIT_S_MAX = 10.0


def until(waits: Waits, holds: Callable[[bool, float], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not holds(*waits.now()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def seen(behaviour: Callable[[Waits, threading.Event], None], look: Callable[[Waits], None]) -> None:
    """Look from here at a thread that behaves so until it is told to end."""
    made: list[Waits] = []
    ready, end = threading.Event(), threading.Event()

    def live() -> None:
        made.append(Waits())
        ready.set()
        behaviour(made[0], end)

    thread = threading.Thread(target=live)
    thread.start()
    assert ready.wait(WAIT_S_MAX)
    try:
        look(made[0])
    finally:
        end.set()
        thread.join()


def test_a_wait_is_told_with_its_kind_and_its_length() -> None:
    def wait(waits: Waits, end: threading.Event) -> None:
        with waits.for_peers():
            assert not waits.exchanging
        with waits.for_peers(exchange=True):
            end.wait()
        assert not waits.exchanging

    def look(waits: Waits) -> None:
        until(waits, lambda waiting, for_s: waiting and for_s > 0.3)
        assert waits.exchanging

    seen(wait, look)


def test_who_sleeps_does_nothing() -> None:
    def sleep(_: Waits, end: threading.Event) -> None:
        end.wait()

    seen(sleep, lambda waits: until(waits, lambda waiting, for_s: not waiting and for_s > 0.3))


def test_who_computes_is_never_idle_for_long() -> None:
    def compute(_: Waits, end: threading.Event) -> None:
        while not end.is_set():
            sum(range(1000))

    def look(waits: Waits) -> None:
        began_s, longest_s = time.monotonic(), 0.0
        while time.monotonic() - began_s < 1.0:
            longest_s = max(longest_s, waits.now()[1])
            time.sleep(0.01)
        assert longest_s < 1.0, "a second without the processor"

    seen(compute, look)
