"""What can go wrong before a run begins: the user's mistakes, and the machine's."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadInput(ValueError):
    """A mistake of the user's. The message holds the value seen, why it is wrong, and the text to type."""


class MachineUnfit(Exception):
    """This machine cannot do what was asked, through no fault of the user's; the message says what to change."""


def near(word: str, known: Iterable[str]) -> str:
    """What to type instead of `word`: the nearest known word, or all of them."""
    known = sorted(known)
    matches = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if matches:
        return f"did you mean {matches[0]!r}?"
    return f"known are: {', '.join(known)}" if known else "none is known here"
