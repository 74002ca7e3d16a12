"""Loads an experiment: a YAML file or the name of a shipped one, with overrides, checked strictly.

Everything that can be said without starting a program is said here; each mistake is one `BadInput`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import inspect

from chaos.model.errors import BadInput, near
from chaos.model.experiment import Expect, Experiment, Repeat, Trigger
from chaos.model.verdict import Outcome
from chaos.registry import faults, monitors

T = TypeVar("T")

KNOWN_BUGS = "known-bugs/"
"""Names of shipped experiments on known bugs of the stack begin so; their files lie in a folder of that name."""
KUEUE = "kueue/"
"""The same of those that ask for a cluster with a queue."""

_MISFIT = re.compile(r"(?P<why>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)


def shipped() -> dict[str, str]:
    """Name -> YAML text of every experiment that comes with torchchaos."""
    root = resources.files("experiments")
    folders = {"": root, KUEUE: root / KUEUE, KNOWN_BUGS: root / KNOWN_BUGS}
    return {
        prefix + entry.name.removesuffix(".yaml"): entry.read_text()
        for prefix, folder in folders.items()
        for entry in _yaml_files(folder)
    }


def load(reference: str, overrides: Iterable[str] = ()) -> Experiment:
    """The experiment in the file `reference`, or the shipped one of that name.

    `overrides` are `key.path=value` texts, values in YAML, applied before checking. Raises BadInput.
    """
    data = parse(reference, _text(reference))
    for override in overrides:
        _apply(data, override)
    experiment = convert(data, Experiment, reference)
    _check(experiment)
    return experiment


def convert(data: object, kind: type[T], where: str) -> T:
    """`data` as `kind`; BadInput names the place, the value seen and what fits there."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as misfit:
        match = _MISFIT.fullmatch(str(misfit))
        assert match is not None
        path = re.findall(r"\w+", match["path"] or "")
        raise BadInput(f"{where}: {_explain(match['why'], path, data, kind)}") from None


def _text(reference: str) -> str:
    path = Path(reference)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        try:
            return path.read_text()
        except OSError as error:
            raise BadInput(f"{reference}: {error.strerror}; give a YAML file or a name from `chaos list`") from None
        except UnicodeDecodeError:
            raise BadInput(f"{reference} is not a text file; give a YAML file or a name from `chaos list`") from None
    known = shipped()
    if reference not in known:
        raise BadInput(f"no experiment is called {reference!r}; {near(reference, known)}")
    return known[reference]


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error, not the last one wins."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} stands twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def parse(reference: str, text: str, kind: str = "an experiment: name:, why:, workload:, ...") -> dict[str, Any]:
    """The mapping that a YAML text holds; `kind` says what it should be. Raises BadInput."""
    try:
        data = yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadInput(f"{reference}{line}: {error.problem}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{reference} is not YAML: {error}") from None
    if not isinstance(data, dict):
        raise BadInput(f"{reference} holds {type(data).__name__}, expected {kind}")
    return data


def _apply(data: dict[str, Any], override: str) -> None:
    path, separator, text = override.partition("=")
    keys = path.split(".")
    if not separator or not all(keys):
        raise BadInput(f"--set {override!r} is not key=value; type for example --set topology.restart=never")
    target: Any = data
    for key in keys[:-1]:
        target = target[_index(target, key, override)] if isinstance(target, list) else target.setdefault(key, {})
        if not isinstance(target, dict | list):
            raise BadInput(f"--set {override!r}: {key!r} holds {target!r}, which has no keys")
    try:
        value = yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError:
        raise BadInput(f"--set {override!r}: {text!r} is not a YAML value; quote it") from None
    target[_index(target, keys[-1], override) if isinstance(target, list) else keys[-1]] = value


def _index(items: list[Any], key: str, override: str) -> int:
    if not key.isdecimal() or int(key) >= len(items):
        raise BadInput(f"--set {override!r}: {key!r} is no place in a list of {len(items)}; count from 0")
    return int(key)


def _explain(why: str, path: list[str], data: object, kind: type) -> str:
    place = ".".join(path)
    info, value = inspect.type_info(kind), data
    for key in path:
        info = _bare(_inner(info, key))
        if isinstance(value, dict):
            value = value.get(key, value)
        elif isinstance(value, list | tuple) and key.isdecimal():
            value = value[int(key)]
    at = f"`{place}`: " if place else ""
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", why):
        known = [field.encode_name for field in info.fields] if isinstance(info, inspect.StructType) else []
        return f"{at}unknown key {unknown[1]!r}; {near(unknown[1], known)}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", why):
        return f"{at}the key {missing[1]!r} is missing; add `{missing[1]}: ...`"
    if isinstance(info, inspect.EnumType):
        return f"{at}{value!r} is not known; {near(str(value), [str(member.value) for member in info.cls])}"
    return f"{at}{value!r} does not fit: {why[0].lower()}{why[1:]}"


def _bare(info: inspect.Type) -> inspect.Type:
    """The type without its notes and without its `or null`."""
    if isinstance(info, inspect.Metadata):
        return _bare(info.type)
    if isinstance(info, inspect.UnionType):
        return _bare(next(one for one in info.types if not isinstance(one, inspect.NoneType)))
    return info


def _inner(info: inspect.Type, key: str) -> inspect.Type:
    if isinstance(info, inspect.StructType):
        return next((field.type for field in info.fields if field.encode_name == key), info)
    if isinstance(info, inspect.DictType):
        return info.value_type
    if isinstance(info, inspect.VarTupleType | inspect.ListType):
        return info.item_type
    return info


def _check(experiment: Experiment) -> None:
    workload = experiment.workload
    if workload.min_replicas > workload.replicas:
        raise BadInput(
            f"workload.min_replicas is {workload.min_replicas}, more than workload.replicas {workload.replicas}: "
            f"no quorum could ever form; type min_replicas: {workload.replicas} or less"
        )
    needed = experiment.baseline.steps + experiment.quiesce.common_steps
    if needed > workload.steps:
        raise BadInput(
            f"workload.steps is {workload.steps}, fewer than baseline.steps + quiesce.common_steps = {needed}; "
            f"type steps: {needed} or more"
        )
    for index, spec in enumerate(experiment.faults):
        _check_fault(f"faults.{index}", spec.fault, spec.args)
        _check_trigger(f"faults.{index}.at", spec.at, experiment)
        _check_repeat(f"faults.{index}.repeat", spec.repeat)
    for index, mix in enumerate(experiment.mixes):
        for place, chance in enumerate(mix.faults):
            _check_fault(f"mixes.{index}.faults.{place}", chance.fault, chance.args)
        _check_trigger(f"mixes.{index}.at", mix.at, experiment)
        _check_repeat(f"mixes.{index}.repeat", mix.repeat)
    if experiment.quorum_floor is not None and experiment.quorum_floor > workload.replicas:
        raise BadInput(
            f"quorum_floor is {experiment.quorum_floor}, more than workload.replicas {workload.replicas}; "
            f"type {workload.replicas} or less"
        )
    for name, limits in experiment.monitors.items():
        if name not in monitors():
            raise BadInput(f"monitors: unknown monitor {name!r}; {near(name, monitors())}")
        convert(limits or {}, monitors()[name].limits, f"monitors.{name}")
    if experiment.expect is not None:
        _check_expect(experiment.expect, {*experiment.monitors, *(n for n, kind in monitors().items() if kind.proves)})


def _check_expect(expect: Expect, judging: set[str]) -> None:
    if expect.outcome is Outcome.PASS:
        raise BadInput("expect.outcome is PASS, which every experiment expects; type FAIL or UNKNOWN, or leave it out")
    if idle := [name for name in expect.by if name not in judging]:
        raise BadInput(f"expect.by: {idle[0]!r} does not judge this experiment; {near(idle[0], judging)}")


def _check_fault(where: str, fault: str, args: dict[str, Any]) -> None:
    if fault not in faults():
        raise BadInput(f"{where}: unknown fault {fault!r}; {near(fault, faults())}")
    convert(args, faults()[fault], f"{where}.args")


def _check_trigger(where: str, at: Trigger, experiment: Experiment) -> None:
    if sum(value is not None for value in msgspec.structs.astuple(at)) != 1:
        raise BadInput(f"{where} needs exactly one of step, seconds, event, point; type for example at: {{step: 12}}")
    last = experiment.workload.steps
    if at.step is not None and at.step >= last:
        raise BadInput(
            f"{where}.step is {at.step}, but the job's last step is {last}: the fault would never come; "
            f"type a step below {last}"
        )
    if at.step is not None and at.step < experiment.baseline.steps:
        raise BadInput(
            f"{where}.step is {at.step}, inside the baseline of {experiment.baseline.steps} steps, which must stay "
            f"healthy; type a step of {experiment.baseline.steps} or more"
        )


def _check_repeat(where: str, repeat: Repeat | None) -> None:
    if repeat is not None and (repeat.period_s is None) == (repeat.mtbf_s is None):
        raise BadInput(f"{where} needs exactly one of period_s and mtbf_s; type for example period_s: 20")


def _yaml_files(folder: Any) -> Iterator[Any]:
    return (entry for entry in sorted(folder.iterdir(), key=lambda e: e.name) if entry.name.endswith(".yaml"))
