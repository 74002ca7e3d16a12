"""How numbers and names are said in readings: one place, so that all sentences sound alike."""

from __future__ import annotations

from collections.abc import Iterable

_NAMED_MAX = 4


def counted(number: int, thing: str, things: str = "") -> str:
    """`1 step`, `2 steps`; `things` are many where an s is not enough."""
    return f"{number} {thing}" if number == 1 else f"{number} {things or thing + 's'}"


def span(seconds: float) -> str:
    """A length of time in seconds without the unit: `12.3`, and `0.02` where a tenth would say nothing."""
    return f"{seconds:.1f}" if seconds >= 0.1 or seconds == 0 else f"{seconds:.2f}"


def listed(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`; of many names the first few, and how many more."""
    named = list(names)
    if len(named) > _NAMED_MAX:
        named = [*named[: _NAMED_MAX - 1], f"{len(named) - _NAMED_MAX + 1} more"]
    return " and ".join(filter(None, [", ".join(named[:-1]), *named[-1:]]))
