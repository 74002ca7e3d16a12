"""Waits that end with the work, with its error, or when they are given up."""

from __future__ import annotations

import threading

import pytest

from training.errands import Errand

SOON_S = 10.0


def test_it_gives_what_the_work_gives_and_raises_what_it_raises() -> None:
    errand = Errand("test")
    assert errand.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        errand.run(lambda: 1 // 0)


def test_given_up_it_raises_the_reason_and_what_the_work_gives_later_is_nobody_s() -> None:
    errand, over = Errand("test"), threading.Event()
    errand.give_up(ConnectionError("too early, of nothing"))
    errand.begun = lambda: errand.give_up(ConnectionError("hopeless"))
    with pytest.raises(ConnectionError, match="hopeless"):
        errand.run(lambda: over.wait(SOON_S))
    errand.begun = lambda: None
    over.set()
    assert errand.run(lambda: "the next") == "the next"


def test_it_is_given_up_from_another_thread() -> None:
    errand, begun, over = Errand("test"), threading.Event(), threading.Event()
    errand.begun = begun.set
    found: list[BaseException] = []

    def wait() -> None:
        try:
            errand.run(lambda: over.wait(SOON_S))
        except ConnectionError as error:
            found.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert begun.wait(SOON_S)
    errand.give_up(ConnectionError("hopeless"))
    waiting.join(SOON_S / 2)
    assert [str(error) for error in found] == ["hopeless"]
    over.set()
