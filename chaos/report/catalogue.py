"""The catalogue of faults, for `chaos faults`: what each does, its arguments, what it needs, where it works.

Everything is read off the fault types themselves and the injections that they make of a sample job.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from chaos.api import Aim, Fault
from chaos.model.aim import MOMENT_ROLES, candidates
from chaos.model.injections import OF_THE_JOB, Held, Injection, needs
from chaos.model.topology import Restart, place
from chaos.model.workload import Role, Workload

Value = int | float | str | bool | None

_ROLES = {
    "lighthouse": ("lighthouse",),
    "controller": ("controller",),
    "replica": ("replica-0", "replica-1"),
    "leftover": ("leftover-0",),
}
_SAMPLE = Workload(1, "sample", 2, 1, 1, {role: Role(members, ()) for role, members in _ROLES.items()})
_TOPOLOGY = place(_SAMPLE, 2, Restart.ALWAYS)


class Argument(msgspec.Struct, frozen=True):
    """One argument. `fits` says in words which values do; `required` ones have no default."""

    name: str
    fits: str
    default: Value
    required: bool


class Entry(msgspec.Struct, frozen=True):
    """One fault. `lacks` names for each isolation of this machine what it is missing; nothing: it works there.

    `schema` is the JSON schema of its arguments, for programs.
    """

    name: str
    summary: str
    why: str
    roles: tuple[str, ...]
    held: bool
    removes: bool
    arguments: tuple[Argument, ...]
    needs: tuple[str, ...]
    lacks: dict[str, tuple[str, ...]]
    schema: dict[str, Any]


def entries(faults: Iterable[type[Fault]], capabilities: Mapping[str, frozenset[str]]) -> list[Entry]:
    """The catalogue; `capabilities` are those of each isolation that works here."""
    return [_entry(kind, capabilities) for kind in faults]


def show(entries: Iterable[Entry], console: Console) -> None:
    """Print the catalogue for a person."""
    for entry in entries:
        console.print(Text.assemble((entry.name, "bold"), f"  {entry.summary}"), soft_wrap=True)
        for line in _details(entry):
            console.print(Text(f"    {line}"), soft_wrap=True)


def _details(entry: Entry) -> Iterator[str]:
    time = "for as long as for_s says" if entry.held else "done at once"
    yield f"hits {', '.join(entry.roles)}; {time}{'' if entry.removes else '; nobody may be lost over it'}"
    for argument in entry.arguments:
        value = "required" if argument.required else argument.default
        yield f"{argument.name}: {value}  ({argument.fits})"
    here = [f"not in {name} ({', '.join(lacks)})" if lacks else f"in {name}" for name, lacks in entry.lacks.items()]
    needed = [f"{need} of the job" if need in OF_THE_JOB else need for need in entry.needs]
    yield f"needs {', '.join(needed) or 'nothing special'}; works here {', '.join(here)}"


def _entry(kind: type[Fault], capabilities: Mapping[str, frozenset[str]]) -> Entry:
    arguments = tuple(map(_argument, msgspec.inspect.type_info(kind).fields))  # type: ignore[attr-defined]
    made = [] if any(argument.required for argument in arguments) else list(_injections(kind()))
    needed = frozenset().union(*map(needs, made))
    summary, _, why = (inspect.getdoc(kind) or "").partition("\n")
    return Entry(
        name=kind.name,
        summary=summary,
        why=" ".join(why.split()),
        roles=tuple(sorted(kind.roles)),
        held=any(isinstance(injection, Held) for injection in made),
        removes=kind.removes,
        arguments=arguments,
        needs=tuple(sorted(needed)),
        lacks={isolation: tuple(sorted(needed - there - OF_THE_JOB)) for isolation, there in capabilities.items()},
        schema=msgspec.json.schema(kind),
    )


def _injections(fault: Fault) -> Iterator[Injection]:
    """What a fault makes of one member of each role it may be aimed at, in a job of a few members."""
    for role in fault.roles:
        where = "replica" if role in MOMENT_ROLES else role
        yield from fault.injections(Aim(candidates(fault.name, where, _TOPOLOGY)[:1], _TOPOLOGY))


def _argument(field: msgspec.inspect.Field) -> Argument:
    default = msgspec.to_builtins(field.default) if field.default is not msgspec.NODEFAULT else None
    return Argument(field.encode_name, _fits(field.type), default, field.required)


def _fits(info: Any) -> str:
    """Which values fit a type, in words."""
    match info:
        case msgspec.inspect.EnumType():
            return " or ".join(str(member.value) for member in info.cls)
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.Metadata():
            return _fits(info.type)
        case msgspec.inspect.UnionType():
            return " or ".join(map(_fits, info.types))
        case msgspec.inspect.NoneType():
            return "nothing"
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            number = "whole number" if isinstance(info, msgspec.inspect.IntType) else "number"
            bounds = {"from": info.ge, "above": info.gt, "to": info.le, "below": info.lt}
            said = " ".join(f"{word} {bound:,}" for word, bound in bounds.items() if bound is not None)
            return f"{number} {said}".strip()
        case _:
            return type(info).__name__.removesuffix("Type").lower()
