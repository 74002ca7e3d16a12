"""A resource: one piece of kernel state that leases share. Its state is always computed from all leases on it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.agent.wire import Grant

State = dict[str, str]
"""What a resource was like, as text by name, so that a ledger can keep it."""


class NotInForce(Exception):
    """The kernel refused, or what was read back is not what was asked for; the message says which, in one line."""


class Gone(Exception):
    """The resource is no more, by its identity: nothing can be done to it and nothing is left to undo."""


@dataclass
class Lease:
    """A grant that runs until `deadline_s` (CLOCK_MONOTONIC)."""

    grant: Grant
    deadline_s: float

    @property
    def left_s(self) -> float:
        return max(0.0, self.deadline_s - time.monotonic())


class Resource(ABC):
    """`key` names it: injections with equal keys share state. Every method may raise OSError, NotInForce and Gone."""

    key: str

    def narrow(self, grant: Grant) -> Grant:
        """The grant with what is relative to the present (a share of what is used) made absolute."""
        return grant

    @abstractmethod
    def before(self) -> State:
        """What is to come back once the last lease has ended. NotInForce when it could not be brought back."""

    @abstractmethod
    def settle(self, leases: Sequence[Lease], before: State) -> str:
        """Set the state that `leases` ask for together, `before` if there are none; prove it by reading it back.

        Setting the same state twice is the same as setting it once. Returns the evidence, a sentence with numbers.
        """
