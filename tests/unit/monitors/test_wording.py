"""How numbers and names are said."""

from __future__ import annotations

import pytest

from chaos.api import counted, listed, span


def test_counted() -> None:
    assert [counted(n, "step") for n in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
    assert [counted(n, "life", "lives") for n in (1, 2)] == ["1 life", "2 lives"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("", ""),
        ("a", "a"),
        ("ab", "a and b"),
        ("abc", "a, b and c"),
        ("abcd", "a, b, c and d"),
        ("abcdefgh", "a, b, c and 5 more"),
    ],
)
def test_listed(names: str, said: str) -> None:
    assert listed(names) == said


def test_span() -> None:
    assert [span(s) for s in (0.0, 0.022, 0.1, 9.84, 31.0)] == ["0.0", "0.02", "0.1", "9.8", "31.0"]
