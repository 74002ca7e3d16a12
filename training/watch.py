"""What the controller makes of the beats of trainers: who lives, who is silent, and who keeps its peers waiting.

A silent trainer may be frozen, cut off or dead; whichever it is, its peers need not wait for it in the exchange that
they are in. One that beats and does nothing while a peer of its group waits is hung. The lighthouse knows nothing of
either: TorchFT's heartbeats come from a thread of their own.
Pure: the caller says what time it is, and looks often. A look that comes late counts for no silence.
"""

from __future__ import annotations

from collections.abc import Iterator

from training.announce import BEAT_S, Beat

Key = tuple[str, int]
LATE_S = 2 * BEAT_S
HANG_STEPS = 4


class _Heard:
    def __init__(self, beat: Beat, at_s: float) -> None:
        self.beat = beat
        self.at_s = at_s
        self.silent = False
        self.condemned = False


class Watch:
    """The trainers of a job by member and incarnation. A limit of 0 is none."""

    def __init__(self, silence_s: float, hang_s: float) -> None:
        self._silence_s = silence_s or float("inf")
        self._hang_s = hang_s or float("inf")
        self._heard: dict[Key, _Heard] = {}
        self._looked_s: float | None = None

    def heard(self, key: Key, beat: Beat, now_s: float) -> None:
        known = self._heard.get(key)
        if known is None or known.beat.replica_id != beat.replica_id:
            self._heard[key] = _Heard(beat, now_s)
        else:
            known.beat, known.at_s, known.silent = beat, now_s, False

    def ended(self, key: Key) -> str | None:
        """The trainer is dead; gives what it was to TorchFT, None when it had not come so far."""
        known = self._heard.pop(key, None)
        return known.beat.replica_id if known else None

    def silent(self, now_s: float) -> Iterator[tuple[Key, str]]:
        """Those that have become silent since the last look, and what they are to TorchFT."""
        late_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        for key, known in self._heard.items():
            if late_s > LATE_S:
                known.at_s += late_s
            if not known.silent and now_s - known.at_s > self._silence_s:
                known.silent = True
                yield key, known.beat.replica_id

    def alive(self, now_s: float) -> Iterator[tuple[Key, str]]:
        """Those of a quorum who were heard of lately, and what they are to TorchFT.

        Not who has waited for longer than a silence: it may be cut off from whom it asks.
        """
        for key, known in self._heard.items():
            stuck = known.beat.waits and known.beat.for_s > self._silence_s
            if known.beat.quorum_id >= 0 and not stuck and now_s - known.at_s <= self._silence_s:
                yield key, known.beat.replica_id

    def present(self) -> set[Key]:
        """Those of a quorum who are not silent."""
        return {key for key, known in self._heard.items() if known.beat.quorum_id >= 0 and not known.silent}

    def waiting(self, limit_s: float) -> set[Key]:
        """Those of a quorum in which one of them has waited for its peers for longer than that; not who is silent."""
        there = self.present()
        beats = [self._heard[key].beat for key in there]
        waiting = {beat.quorum_id for beat in beats if beat.waits and beat.for_s > limit_s}
        return {key for key in there if self._heard[key].beat.quorum_id in waiting}

    def hung(self) -> Iterator[tuple[Key, float]]:
        """Those that keep a peer waiting for too long, each once, and for how long they have done nothing.

        Where steps are slow for all, that is longer.
        """
        step_s = max((known.beat.step_s for known in self._heard.values()), default=0.0)
        limit_s = max(self._hang_s, HANG_STEPS * step_s)
        waiting = {
            known.beat.quorum_id
            for known in self._heard.values()
            if known.beat.waits and known.beat.for_s > limit_s and not known.silent
        }
        for key, known in self._heard.items():
            beat = known.beat
            idle = not beat.waits and beat.for_s > limit_s
            if idle and beat.quorum_id in waiting and not (known.silent or known.condemned):
                known.condemned = True
                yield key, beat.for_s
