"""Plans an experiment: asks the job for its description, places its members, chooses victims by the seed.

Nothing is started but the job's own short description program. Every refusal comes here, before a run begins.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from chaos.api import Fault
from chaos.load import convert
from chaos.model.aim import MOMENT_ROLES, NODE, Aim, candidates, draw, number
from chaos.model.errors import BadInput, near
from chaos.model.experiment import Experiment, FaultSpec, Repeat, Target, WorkloadSpec
from chaos.model.injections import Drain, Held, Injection, needs
from chaos.model.plan import Plan, PlannedFault
from chaos.model.topology import Topology, place
from chaos.model.workload import Workload
from chaos.registry import faults

DESCRIBE_TIMEOUT_S = 30.0
_HOW = {"netem": "as root: modprobe sch_netem", "nft": "apt-get install nftables"}
"""To get what a machine often lacks, by the names of `injections.needs`."""


def plan(experiment: Experiment) -> Plan:
    """The plan of `experiment`, the same for the same seed. Raises BadInput."""
    return plan_for(experiment, describe(experiment.workload, experiment.seed))


def plan_for(experiment: Experiment, workload: Workload) -> Plan:
    """The plan of `experiment` with the job that `workload` describes."""
    topology = place(workload, experiment.topology.nodes, experiment.topology.restart)
    bare = Plan(experiment, workload, topology, ())
    planned = tuple(_plan_fault(*occurrence, bare) for occurrence in _occurrences(experiment))
    return msgspec.structs.replace(bare, faults=planned)


def check_capabilities(plan: Plan, platform: str, capabilities: frozenset[str]) -> None:
    """Refuse a plan that needs what the platform cannot do here, before anything starts."""
    for planned in plan.faults:
        missing = sorted(set(planned.needs) - capabilities - set(plan.workload.capabilities))
        if missing:
            how = "".join(f"; {_HOW[name]}" for name in missing if name in _HOW)
            raise BadInput(
                f"{planned.fault} needs {', '.join(missing)}, which neither the {platform} platform here "
                f"nor the job has{how}; `chaos doctor` says what is there"
            )


def check_imports(plan: Plan) -> None:
    """Refuse a job whose members could not even start with this interpreter."""
    missing = [name for name in plan.workload.imports if importlib.util.find_spec(name) is None]
    if missing:
        raise BadInput(
            f"the job needs {', '.join(missing)}, not installed here; type: pip install 'torchchaos[training]'"
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


def aimed(fault: str, args: dict[str, Any], targets: tuple[str, ...], topology: Topology) -> tuple[Injection, ...]:
    """The injections of a fault of the catalogue on these targets. BadInput when its arguments do not fit."""
    return _aimed(convert(args, faults()[fault], f"{fault}: args"), targets, topology)


def _aimed(fault: Fault, targets: tuple[str, ...], topology: Topology) -> tuple[Injection, ...]:
    try:
        return tuple(fault.injections(Aim(targets, topology)))
    except ValueError as error:
        raise BadInput(f"{fault.name}: {error}") from None


def _occurrences(experiment: Experiment) -> Iterator[tuple[str, str, FaultSpec, float]]:
    """Every time a fault comes: its id, its place in the file, the fault, and the wait from its trigger."""
    for index, spec in enumerate(experiment.faults):
        waits_s = _waits_s(spec.repeat, random.Random(f"{experiment.seed}/fault-{index}/times"))
        for nth, after_s in enumerate(waits_s, start=1):
            name = f"fault-{index}" if spec.repeat is None else f"fault-{index}.{nth}"
            yield name, f"faults.{index}", spec, after_s
    for index, mix in enumerate(experiment.mixes):
        chance = random.Random(f"{experiment.seed}/mix-{index}")
        weights = [one.weight for one in mix.faults]
        for nth, after_s in enumerate(_waits_s(mix.repeat, chance), start=1):
            place = chance.choices(range(len(weights)), weights)[0]
            one = mix.faults[place]
            spec = FaultSpec(one.fault, one.target, mix.at, one.args, one.for_s)
            yield f"mix-{index}.{nth}", f"mixes.{index}.faults.{place}", spec, after_s


def _waits_s(repeat: Repeat | None, chance: random.Random) -> list[float]:
    """Seconds from the trigger to each occurrence; the first comes at once, or after a random wait like the others."""
    if repeat is None:
        return [0.0]
    if repeat.period_s is not None:
        return [nth * repeat.period_s for nth in range(repeat.count)]
    assert repeat.mtbf_s is not None
    return list(itertools.accumulate(chance.expovariate(1 / repeat.mtbf_s) for _ in range(repeat.count)))


def _plan_fault(name: str, where: str, spec: FaultSpec, after_s: float, plan: Plan) -> PlannedFault:
    fault = convert(spec.args, faults()[spec.fault], f"{where}.args")
    target, topology = spec.target, plan.topology
    members = candidates(f"{where}.target", target.role, topology)
    if target.role not in fault.roles and not (target.role in MOMENT_ROLES and "replica" in fault.roles):
        remedy = near(target.role, fault.roles)
        raise BadInput(f"{where}.target.role {target.role!r} cannot be hit by {spec.fault}; {remedy}")
    hits = number(f"{where}.target", target, len(members))
    targets = _targets(f"{where}.target", target, members, hits, random.Random(f"{plan.experiment.seed}/{name}"))
    injections = _aimed(fault, targets or members[:hits], topology)
    _check_duration(where, spec, injections)
    planned = PlannedFault(
        id=name,
        fault=spec.fault,
        at=spec.at,
        role=target.role,
        targets=targets,
        injections=injections if targets else (),
        args=spec.args,
        hits=hits,
        after_s=after_s,
        for_s=spec.for_s,
        rhythm=fault.rhythm,
        follow=spec.follow,
        removes=fault.removes,
        needs=_needs(spec, injections),
    )
    _check_floor(where, planned, plan)
    return planned


def _needs(spec: FaultSpec, injections: tuple[Injection, ...]) -> tuple[str, ...]:
    """What a fault needs. To wait at a point of the trainer takes fault points too; to hit a node as a whole, nodes,
    while to empty one is done to its members.
    """
    also = {"fault_points"} if spec.at.point is not None else set()
    if spec.target.role == NODE and not all(isinstance(injection, Drain) for injection in injections):
        also.add("nodes")
    return tuple(sorted(also.union(*map(needs, injections))))


def _targets(where: str, target: Target, members: tuple[str, ...], hits: int, chance: random.Random) -> tuple[str, ...]:
    if target.role in MOMENT_ROLES:
        return ()
    if target.member is None:
        return draw(members, hits, chance)
    if target.member not in members:
        raise BadInput(f"{where}.member {target.member!r} is not a {target.role}; {near(target.member, members)}")
    return (target.member,)


def _check_duration(where: str, spec: FaultSpec, injections: tuple[Injection, ...]) -> None:
    held = any(isinstance(injection, Held) for injection in injections)
    if held and spec.for_s is None:
        raise BadInput(f"{where}: {spec.fault} stays until it is undone; say how long: for_s: 15")
    if not held and spec.for_s is not None:
        raise BadInput(f"{where}: {spec.fault} is done at once and cannot be undone; remove for_s")
    if not held and spec.follow:
        raise BadInput(f"{where}: {spec.fault} is done at once and has nothing to follow; remove follow")


def _check_floor(where: str, planned: PlannedFault, plan: Plan) -> None:
    """Refuse a fault that could never leave enough replicas, even if all were there."""
    if not planned.removes:
        return
    left = len(plan.replicas()) - len(replicas_hit(planned, plan.topology))
    if left < plan.quorum_floor:
        raise BadInput(
            f"{where}: {planned.fault} would leave {left} of {len(plan.replicas())} replicas, fewer than the quorum "
            f"floor {plan.quorum_floor}; hit fewer, or type quorum_floor: {left} to break it on purpose"
        )


def replicas_hit(planned: PlannedFault, topology: Topology) -> tuple[str, ...]:
    """The replicas among the targets, or on the nodes that are targets."""
    targets = planned.targets or topology.members("replica")[: planned.hits]
    on_nodes = {member for target in targets for member in topology.on(target)}
    return tuple(member for member in topology.members("replica") if member in targets or member in on_nodes)
