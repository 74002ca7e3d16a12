"""Mutations of the journal as a file: lines that are torn, lost, moved, doubled, or not to be read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from chaos.journal import NAME, Reading
from tests.mutations.mutation import JOURNAL, UNKNOWN, Mutation, Run, Scene, harmless, violates

Lines = list[bytes]


def on_lines(mutate: Callable[[Lines, Scene], Lines]) -> Callable[[Scene], Run]:
    """A mutation of lines as one of the run: written to a file and read back as `chaos check` does."""

    def mutated(scene: Scene) -> Run:
        lines = [msgspec.json.encode(event) + b"\n" for event in scene.events]
        with tempfile.TemporaryDirectory() as folder:
            journal = Path(folder) / NAME
            journal.write_bytes(b"".join(mutate(lines, scene)))
            reading = Reading(journal)
            return replace(scene.run, events=tuple(reading.events()), flaws=tuple(reading.flaws))

    mutated.__name__, mutated.__doc__, mutated.__module__ = mutate.__name__, mutate.__doc__, mutate.__module__
    return mutated


def flaws(mutate: Callable[[Lines, Scene], Lines]) -> Mutation:
    return violates(JOURNAL, outcomes=UNKNOWN)(on_lines(mutate))


def flaws_nothing(mutate: Callable[[Lines, Scene], Lines]) -> Mutation:
    return harmless(on_lines(mutate))


def _place(lines: Lines, scene: Scene) -> int:
    """A line that has others before and behind it."""
    return scene.chance.randrange(1, len(lines) - 1)


@flaws
def last_line_torn(lines: Lines, scene: Scene) -> Lines:
    """The writer was killed in the middle of the last line."""
    return [*lines[:-1], lines[-1][: scene.chance.randrange(1, len(lines[-1]))]]


@flaws
def file_cut_off(lines: Lines, scene: Scene) -> Lines:
    """The file ends at any byte."""
    whole = b"".join(lines)
    return [whole[: scene.chance.randrange(len(whole) - 1)]]


@flaws
def line_lost(lines: Lines, scene: Scene) -> Lines:
    """A line is missing."""
    place = _place(lines, scene)
    return [*lines[:place], *lines[place + 1 :]]


@flaws
def lines_lost(lines: Lines, scene: Scene) -> Lines:
    """Many lines in a row are missing."""
    place = _place(lines, scene)
    return [*lines[:place], *lines[place + scene.chance.randint(2, 40) :]]


@flaws
def lines_swapped(lines: Lines, scene: Scene) -> Lines:
    """Two lines stand in each other's place."""
    one, other = sorted(scene.chance.sample(range(1, len(lines) - 1), 2))
    swapped = list(lines)
    swapped[one], swapped[other] = lines[other], lines[one]
    return swapped


@flaws
def line_doubled(lines: Lines, scene: Scene) -> Lines:
    """A line stands there twice."""
    place = _place(lines, scene)
    return [*lines[:place], lines[place], *lines[place:]]


@flaws
def lines_shuffled(lines: Lines, scene: Scene) -> Lines:
    """The file was put together in another order."""
    body = lines[1:-1]
    scene.chance.shuffle(body)
    return [lines[0], *body, lines[-1]]


@flaws
def two_writers(lines: Lines, scene: Scene) -> Lines:
    """Two runs wrote into one file, each with its own numbers."""
    place = _place(lines, scene)
    woven = [line for pair in zip(lines[place:], lines, strict=False) for line in pair]
    return [*lines[:place], *woven]


@flaws
def written_twice(lines: Lines, scene: Scene) -> Lines:
    """After its end the journal was opened again by another run."""
    return [*lines, *lines]


@flaws
def garbage(lines: Lines, scene: Scene) -> Lines:
    """A block of the disk went bad."""
    place = _place(lines, scene)
    return [*lines[:place], scene.chance.randbytes(64).replace(b"\n", b"") + b"\n", *lines[place + 1 :]]


@flaws
def zeros(lines: Lines, scene: Scene) -> Lines:
    """The machine lost its power: the end of the file is zeros."""
    place = _place(lines, scene)
    return [*lines[:place], bytes(len(b"".join(lines[place:])))]


@flaws
def byte_flipped(lines: Lines, scene: Scene) -> Lines:
    """A quotation mark of one line became something else."""
    place = _place(lines, scene)
    quotes = [index for index, byte in enumerate(lines[place]) if byte == ord('"')]
    index = scene.chance.choice(quotes)
    return [*lines[:place], lines[place][:index] + b"\x00" + lines[place][index + 1 :], *lines[place + 1 :]]


@flaws
def kind_of_the_future(lines: Lines, scene: Scene) -> Lines:
    """An event is of a kind that this version does not know."""
    place = _place(lines, scene)
    data = msgspec.json.decode(lines[place]) | {"kind": "reshard_started"}
    return [*lines[:place], msgspec.json.encode(data) + b"\n", *lines[place + 1 :]]


@flaws
def field_of_another_type(lines: Lines, scene: Scene) -> Lines:
    """A number became a word."""
    place = _place(lines, scene)
    data = msgspec.json.decode(lines[place])
    data["incarnation"] = "one"
    return [*lines[:place], msgspec.json.encode(data) + b"\n", *lines[place + 1 :]]


@flaws
def field_missing(lines: Lines, scene: Scene) -> Lines:
    """An event lacks a field that it must have."""
    steps = [index for index, line in enumerate(lines) if b'"kind":"step"' in line]
    place = scene.any_of(steps)
    data = msgspec.json.decode(lines[place])
    del data["committed"]
    return [*lines[:place], msgspec.json.encode(data) + b"\n", *lines[place + 1 :]]


@flaws
def number_missing(lines: Lines, scene: Scene) -> Lines:
    """An event has no number."""
    place = _place(lines, scene)
    data = msgspec.json.decode(lines[place])
    del data["seq"]
    return [*lines[:place], msgspec.json.encode(data) + b"\n", *lines[place + 1 :]]


@flaws
def nothing_written(lines: Lines, scene: Scene) -> Lines:
    """The file is empty."""
    return []


@flaws
def field_of_the_future(lines: Lines, scene: Scene) -> Lines:
    """Events have a field that this version does not know."""
    future = []
    for line in lines:
        data = msgspec.json.decode(line)
        future.append(msgspec.json.encode(data | {"shard": 3}) + b"\n")
    return future


@flaws_nothing
def written_by_hand(lines: Lines, scene: Scene) -> Lines:
    """Lines have blanks and their fields stand in another order."""
    spaced = []
    for line in lines:
        data = msgspec.json.decode(line)
        fields = list(data.items())
        scene.chance.shuffle(fields)
        spaced.append(msgspec.json.encode(dict(fields)).replace(b'":', b'": ') + b"\n")
    return spaced
