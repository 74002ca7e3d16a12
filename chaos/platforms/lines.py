"""Lines that members write about themselves -> typed events.

A member writes flat JSON objects, one per line: `kind`, `mono_s` (CLOCK_MONOTONIC), `wall_s`, `member`, `incarnation`,
`seq` (from 0, no gaps within one writer), and the fields of its kind. However the bytes arrive (a file, a log stream),
`Lines` makes events of them; what is missing or cannot be read becomes an event as well, so that nothing is lost
silently. No I/O.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from chaos.model import events
from chaos.model.events import Event, EventsLost, Unknown

LINE_BYTES_MAX = 1024 * 1024
"""A longer line is given up as lost, so that a member without line ends cannot fill the runner's memory."""

FromMember = (
    events.TrainerStarted
    | events.Quorum
    | events.HealStarted
    | events.HealEnded
    | events.HealServed
    | events.Step
    | events.FaultPointHit
    | events.TrainerFinished
    | events.TrainerFailed
    | events.ControllerStarted
    | events.LighthouseStarted
    | events.MemberAttached
    | events.TrainerSpawned
    | events.MemberLost
    | events.TrainerLost
    | events.AttachFailed
    | events.ControllerFinished
)
"""The kinds a member may write. Any other, such as one of the runner's, becomes Unknown."""


class Lines:
    """The events of one life of a member. `epoch_mono_s` is where the run's clock is zero."""

    def __init__(self, member: str, incarnation: int, epoch_mono_s: float) -> None:
        self._member = member
        self._incarnation = incarnation
        self._epoch_mono_s = epoch_mono_s
        self._partial = b""
        self._next_seq = 0
        self._t_s = 0.0

    def feed(self, data: bytes) -> list[Event]:
        """Take bytes as they come; the events of every line that is complete now."""
        *whole, self._partial = (self._partial + data).split(b"\n")
        found = [event for raw in whole for event in self.line(raw)]
        if len(self._partial) > LINE_BYTES_MAX:
            self._partial = b""
            found.append(self._lost(f"a line is longer than {LINE_BYTES_MAX} bytes", None))
        return found

    def end(self) -> list[Event]:
        """The life is over and no byte comes any more."""
        partial, self._partial = self._partial, b""
        return [self._lost("the last line is not complete", 1)] if partial else []

    def line(self, raw: bytes) -> list[Event]:
        """The events of one line without its end: usually one."""
        if not raw.strip():
            return []
        try:
            data = _decode(raw)
        except ValueError as error:
            return [self._lost(f"a line is not a JSON object: {error}", 1)]
        found: list[Event] = []
        try:
            self._t_s = float(data["mono_s"]) - self._epoch_mono_s
            seq = int(data["seq"])
        except (KeyError, TypeError, ValueError):
            return [self._unknown(data)]
        if seq > self._next_seq:
            found.append(self._lost(f"seq jumps from {self._next_seq - 1} to {seq}", seq - self._next_seq))
        elif 0 < seq < self._next_seq:  # 0 is a new writer, such as a trainer that was started again.
            found.append(self._lost(f"seq falls from {self._next_seq - 1} to {seq}", None))
        self._next_seq = seq + 1
        found.append(self._event(data))
        return found

    def _event(self, data: dict[str, Any]) -> Event:
        if (data.get("member"), data.get("incarnation")) != (self._member, self._incarnation):
            return self._unknown(data)
        own = {key: value for key, value in data.items() if key not in ("mono_s", "wall_s", "seq")}
        try:
            event: Event = msgspec.convert(own | {"t_s": self._t_s}, FromMember)
        except msgspec.ValidationError:
            return self._unknown(data)
        return event

    def _unknown(self, data: dict[str, Any]) -> Unknown:
        kind = str(data.get("kind", ""))
        return Unknown(t_s=self._t_s, member=self._member, incarnation=self._incarnation, of_kind=kind, data=data)

    def _lost(self, reason: str, count: int | None) -> EventsLost:
        """`t_s` is that of the last line before: where the blind window begins."""
        return EventsLost(t_s=self._t_s, member=self._member, incarnation=self._incarnation, reason=reason, count=count)


def _decode(raw: bytes) -> dict[str, Any]:
    """ValueError when it is not an object. NaN and Infinity pass: a diverged loss is a finding, not a broken line."""
    try:
        data = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        data = json.loads(raw)
    if not isinstance(data, dict):
        raise ValueError(f"found {type(data).__name__}")
    return data
