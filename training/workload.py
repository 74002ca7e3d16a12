"""Describes a job to whoever starts its members: roles, commands with placeholders, environment.

``describe`` answers without importing torch. The reader substitutes {python}, {member}, {incarnation}, {address},
{host}, {host:NAME}, {data_interface}, {events} and {scratch}; nothing else stands in braces.
"""

from __future__ import annotations

from typing import Any

import msgspec

from training import recipes
from training.settings import Job, Settings

CONTROLLER_PORT, LIGHTHOUSE_PORT = 29400, 29510
MONARCH_TIMERS = {
    "HYPERACTOR_MESH_SUPERVISION_POLL_FREQUENCY": "1s",
    "HYPERACTOR_MESH_SUPERVISION_WATCHDOG_TIMEOUT": "10s",
    "HYPERACTOR_MESSAGE_DELIVERY_TIMEOUT": "5s",
    "HYPERACTOR_CHANNEL_TCP_KEEPALIVE_IDLE": "3s",
    "HYPERACTOR_CHANNEL_RECONNECT_TIMEOUT": "5s",
    "HYPERACTOR_MESH_GET_ACTOR_STATE_MAX_IDLE": "5s",
    "HYPERACTOR_MESH_GET_PROC_STATE_MAX_IDLE": "5s",
}


class Role(msgspec.Struct, frozen=True):
    """Members that are started by one command. Those ``on_demand`` are not part of the job, see ``leftover``."""

    members: list[str]
    command: list[str]
    on_demand: bool = False


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What ``describe`` prints. ``capabilities``: what else may be done with the job, see ``faultpoints``.
    ``imports``: the packages that members cannot start without. ``gradients_over``: the way of gradients.
    """

    version: int = 1
    recipe: str
    replicas: int
    min_replicas: int
    steps: int
    roles: dict[str, Role]
    env: dict[str, str]
    capabilities: list[str]
    imports: list[str]
    gradients_over: str = ""


def describe(job: Job) -> Workload:
    """The workload of a checked job."""
    roles: dict[str, Role] = {}
    job_flags = _flags(job)
    me = ["--name", "{member}", "--incarnation", "{incarnation}", "--events", "{events}"]
    lighthouse_flag: list[str] = []
    if job.settings.lighthouse == "member":
        bind = ["--bind", f"{{address}}:{LIGHTHOUSE_PORT}"]
        roles["lighthouse"] = Role(["lighthouse"], [*_run("lighthouse"), *bind, *me, *job_flags])
        lighthouse_flag = ["--lighthouse", f"{{host:lighthouse}}:{LIGHTHOUSE_PORT}"]
    bind = ["--bind", f"{{address}}:{CONTROLLER_PORT}"]
    roles["controller"] = Role(["controller"], [*_run("controller"), *bind, *lighthouse_flag, *me, *job_flags])
    place = ["--address", "{address}", "--host", "{host}", "--data-interface", "{data_interface}"]
    own = ["--scratch", "{scratch}"]
    controller = ["--controller", f"{{host:controller}}:{CONTROLLER_PORT}"]
    recipe = ["--recipe", job.recipe, *(["--nursery"] if job.settings.respawn != "pod" else [])]
    roles["replica"] = Role(job.members(), [*_run("worker"), *me, *place, *own, *controller, *recipe])
    if job.settings.lighthouse == "member":
        command = [*_run("leftover"), *me, *place, *own, *lighthouse_flag, *job_flags]
        roles["leftover"] = Role(["leftover-0"], command, on_demand=True)
    return Workload(
        recipe=job.recipe,
        replicas=job.replicas,
        min_replicas=job.min_replicas,
        steps=job.steps,
        roles=roles,
        env=environment(job),
        capabilities=["fault_points"],
        imports=["torch", "torchft", "torchtitan", "monarch"],
        gradients_over=job.settings.gradients_over,
    )


def environment(job: Job) -> dict[str, str]:
    """What every member needs in its environment."""
    env = {
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "RUST_LOG": "warn",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        **(MONARCH_TIMERS if job.settings.monarch_timers == "tuned" else {}),
        "HYPERACTOR_MESH_ORPHAN_TIMEOUT": f"{job.settings.orphan_timeout_s}s",
    }
    if recipes.find(job.recipe).device == "cpu":
        env |= {"CUDA_VISIBLE_DEVICES": "", "TORCHDYNAMO_DISABLE": "1"}
    else:
        env["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a process that asked CUDA itself has no forks that can use it
    return env


def _run(command: str) -> list[str]:
    return ["{python}", "-m", "training", command]


def _flags(job: Job) -> list[str]:
    """The options that make the same job again: ``--set`` for what differs from the recipe's defaults."""
    flags = ["--recipe", job.recipe, "--replicas", job.replicas, "--min-replicas", job.min_replicas]
    flags += ["--steps", job.steps]
    recipe = recipes.find(job.recipe)
    if job.settings.profile != recipe.defaults.profile:
        flags += ["--set", f"profile={job.settings.profile}"]
    defaults: Settings = recipe.settings(job.settings.profile)
    for name in job.settings.__struct_fields__:
        value: Any = getattr(job.settings, name)
        if value != getattr(defaults, name):
            flags += ["--set", f"{name}={value}"]
    return [str(flag) for flag in flags]
