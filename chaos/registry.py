"""Finds faults and monitors: every class of the packages that the entry-point groups name.

A package of a user's own joins by declaring the same entry points; nothing else has to be registered.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, cast

from chaos.api import Fault, Monitor


@functools.cache
def faults() -> Mapping[str, type[Fault]]:
    """Name -> fault, sorted by name."""
    return cast(Mapping[str, type[Fault]], _named("chaos.faults", Fault))


@functools.cache
def monitors() -> Mapping[str, type[Monitor[Any]]]:
    """Name -> monitor, sorted by name."""
    return cast(Mapping[str, type[Monitor[Any]]], _named("chaos.monitors", Monitor))


def summary(member: type) -> str:
    """The first line of a fault's or monitor's docstring."""
    return (inspect.getdoc(member) or "").partition("\n")[0]


def _classes(group: str, base: type) -> Iterator[type]:
    for package_name in sorted({entry.value for entry in entry_points(group=group)}):
        package = importlib.import_module(package_name)
        for info in pkgutil.iter_modules(package.__path__, f"{package_name}."):
            module = importlib.import_module(info.name)
            for member in vars(module).values():
                if inspect.isclass(member) and issubclass(member, base) and member.__module__ == module.__name__:
                    yield member


def _named(group: str, base: type) -> Mapping[str, type]:
    named: dict[str, type] = {}
    for member in _classes(group, base):
        name = getattr(member, "name", None)
        if not isinstance(name, str):
            continue
        if name in named:
            raise ValueError(f"two classes are called {name!r}: {named[name].__module__} and {member.__module__}")
        if not summary(member):
            raise ValueError(f"{member.__module__}.{member.__name__} has no docstring to show in `chaos list`")
        named[name] = member
    return dict(sorted(named.items()))
