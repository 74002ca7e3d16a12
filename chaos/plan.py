"""Plans an experiment: asks the job for its description, places its members, chooses victims by the seed.

Nothing is started but the job's own short description program. Every refusal comes here, before a run begins.
"""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys

import msgspec

from chaos.load import convert
from chaos.model.errors import BadInput, near
from chaos.model.experiment import Experiment, FaultSpec, Pick, WorkloadSpec
from chaos.model.plan import Plan, PlannedFault
from chaos.model.topology import Topology, place
from chaos.model.workload import Workload
from chaos.registry import faults

DESCRIBE_TIMEOUT_S = 30.0


def plan(experiment: Experiment) -> Plan:
    """The plan of `experiment`, the same for the same seed. Raises BadInput."""
    workload = describe(experiment.workload, experiment.seed)
    topology = place(workload, experiment.topology.nodes, experiment.topology.restart)
    planned = tuple(
        _plan_fault(index, spec, topology, random.Random(f"{experiment.seed}/{index}"))
        for index, spec in enumerate(experiment.faults)
    )
    return Plan(experiment, workload, topology, planned)


def check_capabilities(plan: Plan, platform: str, capabilities: frozenset[str]) -> None:
    """Refuse a plan that needs what the platform cannot do here, before anything starts."""
    for planned in plan.faults:
        missing = set(planned.needs) - capabilities
        if missing:
            raise BadInput(
                f"{planned.fault} needs {', '.join(sorted(missing))}, which the {platform} platform lacks here; "
                "`chaos doctor` says how to get it"
            )


def describe(spec: WorkloadSpec, seed: int) -> Workload:
    """Ask the job's program for its description. Raises BadInput with the program's own words."""
    if importlib.util.find_spec(spec.program) is None:
        raise BadInput(f"workload.program {spec.program!r} cannot be imported; pip install 'torchchaos[training]'")
    command = [sys.executable, "-m", spec.program, "describe", "--recipe", spec.recipe]
    command += ["--replicas", str(spec.replicas), "--min-replicas", str(spec.min_replicas)]
    command += ["--steps", str(spec.steps), "--seed", str(seed)]
    for key, value in spec.settings.items():
        command += ["--set", f"{key}={_text(value)}"]
    try:
        done = subprocess.run(
            command, env=_same_imports(), capture_output=True, text=True, timeout=DESCRIBE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"`{' '.join(command)}` did not end within {DESCRIBE_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        raise BadInput(f"workload: {done.stderr.strip() or f'{spec.program} ended with {done.returncode}'}")
    try:
        return msgspec.json.decode(done.stdout, type=Workload)
    except msgspec.MsgspecError as misfit:
        raise BadInput(f"workload.program {spec.program!r} printed no workload description: {misfit}") from None


def _same_imports() -> dict[str, str]:
    """An environment in which a program finds every module that this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plan_fault(index: int, spec: FaultSpec, topology: Topology, chance: random.Random) -> PlannedFault:
    where = f"faults.{index}.target"
    kind = faults()[spec.fault]
    role = spec.target.role
    if role not in topology.roles():
        raise BadInput(f"{where}.role {role!r} does not exist in this job; {near(role, topology.roles())}")
    if role not in kind.roles:
        raise BadInput(f"{where}.role {role!r} cannot be hit by {spec.fault}; {near(role, kind.roles)}")
    fault = convert(spec.args, kind, f"faults.{index}.args")
    targets = _targets(where, spec, topology.members(role), chance)
    injections = tuple(injection for target in targets for injection in fault.injections(target))
    return PlannedFault(f"fault-{index}", spec.fault, targets, spec.at, injections, tuple(sorted(kind.needs)))


def _targets(where: str, spec: FaultSpec, members: tuple[str, ...], chance: random.Random) -> tuple[str, ...]:
    if spec.target.member is not None:
        if spec.target.member not in members:
            raise BadInput(
                f"{where}.member {spec.target.member!r} is not a {spec.target.role}; "
                f"{near(spec.target.member, members)}"
            )
        return (spec.target.member,)
    return members if spec.target.pick is Pick.ALL else (chance.choice(members),)
