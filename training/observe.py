"""Turns what TorchFT says and does into events. Never reads printed loss lines: a discarded step prints one too.

Sources: the quorum results of ``manager.WatchedClient``, the ``torchft_commits`` logger (one record per vote, with the
step before the update), the manager's own state. Quorum results arrive on TorchFT's thread, all else on the main one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from training import events


class Vote(msgspec.Struct, frozen=True):
    """The outcome of one commit vote: ``step`` updates before it, and whether it added one."""

    step: int
    quorum_id: int
    committed: bool


class Votes(logging.Handler):
    """Keeps the last vote told to ``torchft_commits``."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Vote | None = None

    def emit(self, record: logging.LogRecord) -> None:
        said: dict[str, Any] = record.__dict__
        self.last = Vote(said["step"], said["quorum_id"], said["commit_result"])

    def listen(self) -> Votes:
        """Attach to TorchFT's logger of this process."""
        source = logging.getLogger("torchft_commits")
        source.setLevel(logging.INFO)
        source.propagate = False
        source.addHandler(self)
        return self


class Observer:
    """The watch of one replica's manager (see ``manager.Watch``); writes quorum and heal events.

    ``digest`` gives the digest of the live state, or None when digests are off; called on the main thread only.
    ``changed`` says, once per change, that the group changed since it was last asked: a digest is then due.
    """

    def __init__(self, emit: Callable[[events.Event], None], digest: Callable[[], str | None]) -> None:
        self._emit = emit
        self._digest = digest
        self._quorum_id = -1
        self._names: list[str] = []
        self._source = ""
        self._changed = False

    def quorum(self, result: Any, state_step: int) -> None:
        names = [name.partition(":")[0] for name in result.replica_ids]
        same_group = (result.quorum_id, sorted(names)) == (self._quorum_id, sorted(self._names))
        self._names = names
        if result.heal or not same_group:
            self._quorum_id = result.quorum_id
            self._changed = True
            self._emit(
                events.Quorum(
                    quorum_id=result.quorum_id,
                    step=state_step,
                    participants=result.max_world_size,
                    members=sorted(self._names) or None,
                    max_step=result.max_step,
                    heal=result.heal,
                )
            )
        if result.heal:
            self._source = self._name(result.recover_src_replica_rank, result.recover_src_manager_address)
            self._emit(events.HealStarted(step=result.max_step, source=self._source))

    def served(self, step: int, ranks: list[int]) -> None:
        self._emit(events.HealServed(step=step, destinations=[self._name(rank, str(rank)) for rank in ranks]))

    def healed(self, step: int) -> None:
        self._emit(events.HealEnded(step=step, source=self._source, digest=self._digest()))

    def changed(self) -> bool:
        changed, self._changed = self._changed, False
        return changed

    def _name(self, rank: int | None, otherwise: str) -> str:
        known = rank is not None and 0 <= rank < len(self._names)
        return self._names[rank] if known and rank is not None else otherwise
