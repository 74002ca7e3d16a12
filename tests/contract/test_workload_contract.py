"""The job and the framework meet in data only; here both ends are held to it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, get_args

import msgspec
import pytest

import training.events
from chaos.model import events
from chaos.model.workload import Workload, fill
from chaos.platforms.lines import Lines

CPU_RECIPES = ("cpu-debug", "cpu-debug-stock-heal")
ENVELOPE = {"seq", "t_s", "member", "incarnation"}
KINDS = {kind.__struct_config__.tag: kind for kind in get_args(events.AnyEvent)}
JOB_KINDS = [
    kind
    for kind in vars(training.events).values()
    if isinstance(kind, type) and issubclass(kind, training.events.Event) and kind is not training.events.Event
]


def describe(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "training", "describe", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("recipe", CPU_RECIPES)
@pytest.mark.parametrize("lighthouse", ["member", "controller"])
def test_the_job_describes_itself_as_the_framework_reads_it(recipe, lighthouse):
    args = ("--recipe", recipe, "--replicas", "4", "--min-replicas", "3", "--steps", "77")
    done = describe(*args, "--set", f"lighthouse={lighthouse}")
    assert done.returncode == 0, done.stderr
    workload = msgspec.json.decode(done.stdout, type=Workload)
    assert (workload.recipe, workload.replicas, workload.min_replicas, workload.steps) == (recipe, 4, 3, 77)
    assert workload.roles["replica"].members == ("replica-0", "replica-1", "replica-2", "replica-3")
    assert ("lighthouse" in workload.roles) == (lighthouse == "member")


def test_every_placeholder_is_one_that_platforms_fill():
    done = describe("--recipe", "cpu-debug", "--replicas", "2", "--min-replicas", "1", "--steps", "9")
    workload = msgspec.json.decode(done.stdout, type=Workload)
    own = ("python", "member", "incarnation", "address", "host", "data_interface", "events", "scratch")
    values = dict.fromkeys((*own, *(f"host:{member}" for member in workload.members())), "x")
    for role in workload.roles.values():
        assert "{" not in "".join(fill(part, values) for part in role.command)


def test_bad_input_of_the_job_is_one_line_and_64():
    done = describe("--recipe", "cpu-debgu", "--replicas", "2", "--min-replicas", "1", "--steps", "9")
    assert done.returncode == 64
    assert "did you mean 'cpu-debug'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("kind", JOB_KINDS, ids=lambda kind: kind.__name__)
def test_each_event_of_the_job_is_read_as_written(kind):
    tag = kind.__struct_config__.tag
    assert tag in KINDS, f"the framework does not know {tag}"
    theirs, ours = set(kind.__struct_fields__), set(KINDS[tag].__struct_fields__) - ENVELOPE
    assert theirs == ours
    written = sample(kind)
    envelope = {"seq": 0, "mono_s": 11.5, "wall_s": 0.0, "member": "replica-0", "incarnation": 2}
    line = json.loads(msgspec.json.encode(written)) | envelope
    (read,) = Lines("replica-0", 2, 10.0).feed(msgspec.json.encode(line) + b"\n")
    assert read.t_s == 1.5
    back = {name: value for name, value in json.loads(msgspec.json.encode(read)).items() if name not in ENVELOPE}
    assert back == json.loads(msgspec.json.encode(written))


def sample(kind: type[training.events.Event]) -> training.events.Event:
    """An event with a telling value in each field."""
    values: dict[type, Any] = {int: 7, float: 0.25, str: "text", bool: True}
    filled = {}
    for field in msgspec.structs.fields(kind):
        text = str(field.type)
        if "dict" in text:
            filled[field.name] = {"import": 1.5}
        elif "list" in text or "tuple" in text:
            filled[field.name] = ["replica-1"]
        else:
            filled[field.name] = next(value for hint, value in values.items() if hint.__name__ in text)
    return kind(**filled)
