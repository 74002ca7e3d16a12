"""The journal: one file of JSON lines, one writer, written through at each event.

`Journal` appends; `Reading` gives the events back and says what it could not read. A journal is evidence: it is created
once, never opened for writing again, and a line that is torn or out of order is stated, not repaired.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from types import TracebackType

import msgspec

from chaos.model.events import AnyEvent, Event, Unknown
from chaos.model.wording import counted

NAME = "journal.jsonl"

FLAWS_SAID_MAX = 10
_NEWLINE = ord("\n")
_BATCH_BYTES = 1 << 15
"""Enough that reading a journal of a gigabyte costs little beside decoding it."""


class _Envelope(msgspec.Struct):
    """What an event of any version has."""

    kind: str
    seq: int
    t_s: float
    member: str
    incarnation: int = 0


_decode_event = msgspec.json.Decoder(AnyEvent).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_object = msgspec.json.Decoder(dict).decode
_encode = msgspec.json.Encoder().encode


class JournalBroken(Exception):
    """The journal cannot be written; the run must stop, because what is not recorded did not happen."""


class Journal:
    """The writer. Numbers events in the order they are recorded."""

    def __init__(self, path: Path) -> None:
        """Create the file; FileExistsError when it has a writer or a story already."""
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._next_seq = 0

    def record(self, event: Event) -> AnyEvent:
        """Append the event with the next number and return it so numbered. JournalBroken when the disk refuses."""
        numbered: AnyEvent = msgspec.structs.replace(event, seq=self._next_seq)  # type: ignore[assignment]
        line = _encode(numbered) + b"\n"
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            raise JournalBroken(f"the journal cannot be written: {error.strerror}") from error
        if written != len(line):
            raise JournalBroken("the journal cannot be written: the disk took a part of a line only")
        self._next_seq += 1
        return numbered

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)


class Reading:
    """A journal read back. `flaws` fills up while `events` is consumed; with any flaw nothing may be called a pass.

    Of many flaws the first are said and the others counted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.flaws: list[str] = []
        self.mixed = False
        """Events are missing, double or in another order: it is not the story that one writer wrote."""
        self._flaws_unsaid = 0
        self._line = 0
        self._expected_seq = 0

    def events(self) -> Iterator[AnyEvent]:
        """The events in order. What cannot be understood comes as `Unknown` and is a flaw."""
        return chain.from_iterable(self.batches())

    def batches(self) -> Iterator[Sequence[AnyEvent]]:
        """The same, many at once."""
        with self._path.open("rb") as journal:
            while lines := journal.readlines(_BATCH_BYTES):
                yield self._at_once(lines) or list(self._one_by_one(lines))

    def _at_once(self, lines: list[bytes]) -> list[AnyEvent] | None:
        """The events of some lines, as long as nothing is wrong with any."""
        if lines[-1][-1] != _NEWLINE:
            return None
        try:
            events = [_decode_event(line) for line in lines]
        except (msgspec.MsgspecError, RecursionError):
            return None
        expected_seqs = range(self._expected_seq, self._expected_seq + len(events))
        if [event.seq for event in events] != list(expected_seqs):
            return None
        self._line += len(events)
        self._expected_seq += len(events)
        return events

    def _one_by_one(self, lines: list[bytes]) -> Iterator[AnyEvent]:
        for line in lines:
            self._line += 1
            if line[-1] != _NEWLINE:
                self._flaw(f"line {self._line} is torn: the writer was cut off in the middle of it")
                return
            try:
                event = _decode_event(line)
            except (msgspec.MsgspecError, RecursionError) as misfit:
                unread = self._unread(self._line, line, misfit)
                if unread is None:
                    continue
                event = unread
            if event.seq != self._expected_seq:
                self.mixed = True
                self._flaw(f"line {self._line} has number {event.seq}, expected {self._expected_seq}")
            self._expected_seq = event.seq + 1
            yield event

    def _unread(self, number: int, line: bytes, misfit: Exception) -> Unknown | None:
        """What can be told of an event that does not fit any kind of this version."""
        try:
            event, data = _decode_envelope(line), _decode_object(line)
        except (msgspec.MsgspecError, RecursionError):
            self._flaw(f"line {number} is not an event: {misfit}")
            return None
        self._flaw(f"line {number} is an event of kind {event.kind!r} that this version cannot read: {misfit}")
        own = {name: value for name, value in data.items() if name not in _Envelope.__struct_fields__}
        return Unknown(
            seq=event.seq,
            t_s=event.t_s,
            member=event.member,
            incarnation=event.incarnation,
            of_kind=event.kind,
            data=own,
        )

    def _flaw(self, said: str) -> None:
        if len(self.flaws) < FLAWS_SAID_MAX:
            self.flaws.append(said)
            return
        self._flaws_unsaid += 1
        self.flaws[FLAWS_SAID_MAX:] = [f"and {counted(self._flaws_unsaid, 'more flaw')}"]
