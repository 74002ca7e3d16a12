"""The recipes: what is trained, on which device, with which defaults.

Names, sentences and defaults are plain data; the TorchTitan configuration is built only in a trainer process,
after ``cpu.install()`` where the device is the CPU. All recipes take the same path through ``trainer``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from training import timers
from training.settings import Job, Settings, UserError, near_miss, shard_of, with_changes

if TYPE_CHECKING:
    from training.trainer import ReplicaTrainer


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A named starting point. ``flavor`` is the TorchTitan llama3 flavor, ``step_s`` about what its steps take."""

    name: str
    sentence: str
    device: str
    flavor: str
    step_s: float
    defaults: Settings

    def settings(self, profile: str) -> Settings:
        """The defaults in another profile."""
        timers_then = timers.profile(profile, self.step_s)
        return msgspec.structs.replace(self.defaults, profile=profile, **timers_then)


CPU_STEP_S, GPU_STEP_S = 0.3, 1.0
_CPU = Settings(**timers.profile("tuned", CPU_STEP_S))
_GPU = Settings(
    batch=2,
    seq_len=4096,
    learning_rate=3e-4,
    warmup_steps=200,
    digest_every=50,
    log_every=10,
    spawn_timeout_s=300.0,
    stop_grace_s=120.0,
    **timers.profile("tuned", GPU_STEP_S),
)

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="cpu-debug",
            sentence="The llama3 debug model on the CPU over Gloo, fault tolerance at every step; no GPU, no network.",
            device="cpu",
            flavor="debugmodel",
            step_s=CPU_STEP_S,
            defaults=_CPU,
        ),
        Recipe(
            name="cpu-debug-stock-heal",
            sentence="cpu-debug with the healing of TorchTitan 0.3 and TorchFT 0.2 as they are, faults included.",
            device="cpu",
            flavor="debugmodel",
            step_s=CPU_STEP_S,
            defaults=msgspec.structs.replace(_CPU, heal="stock", schedule="tries", init_sync=True, non_finite="commit"),
        ),
        Recipe(
            name="llama3-1b",
            sentence="Llama 3 1B in bf16 over NCCL, one GPU per replica; C4 with --set data=PATH.",
            device="cuda",
            flavor="1B",
            step_s=GPU_STEP_S,
            defaults=_GPU,
        ),
        Recipe(
            name="llama3-8b",
            sentence="Llama 3 8B in bf16 over NCCL, one GPU of 140 GB per replica; C4 with --set data=PATH.",
            device="cuda",
            flavor="8B",
            step_s=GPU_STEP_S,
            defaults=_GPU,
        ),
    )
}


def find(name: str) -> Recipe:
    """The recipe called ``name``; UserError with the near miss when there is none."""
    if name not in RECIPES:
        raise UserError(f"--recipe {name}: no such recipe; {near_miss(name, RECIPES)}")
    return RECIPES[name]


def make_job(recipe: str, *, replicas: int, min_replicas: int, steps: int, seed: int | None, changes: list[str]) -> Job:
    """A checked job from what the person typed. Raises UserError."""
    found = find(recipe)
    if seed is not None:
        changes = [f"seed={seed}", *changes]
    if not 1 <= replicas <= 64:
        raise UserError(f"--replicas {replicas}: a job has 1 to 64 replicas; type --replicas 3")
    if not 1 <= min_replicas <= replicas:
        remedy = f"type --min-replicas {replicas}"
        raise UserError(f"--min-replicas {min_replicas}: must be between 1 and the {replicas} replicas; {remedy}")
    if steps < 1:
        raise UserError(f"--steps {steps}: a job has at least one step; type --steps 200")
    chosen = with_changes(found.defaults, [change for change in changes if change.startswith("profile=")])
    settings = with_changes(found.settings(chosen.profile), changes)
    timers.check(settings)
    return Job(recipe=recipe, replicas=replicas, min_replicas=min_replicas, steps=steps, settings=settings)


def require_device(recipe: str) -> None:
    """Refuse a GPU recipe on a machine without one; checked where a trainer is to run, without importing torch."""
    if find(recipe).device == "cuda" and not os.path.exists("/dev/nvidiactl"):
        raise UserError(f"--recipe {recipe}: needs an NVIDIA GPU and this machine has none; type --recipe cpu-debug")


def trainer_config(
    job: Job, *, member: str, host: str, heal_host: str, lighthouse: str, scratch: str
) -> ReplicaTrainer.Config:
    """The TorchTitan configuration of one replica. Imports torch and torchtitan: call it in a trainer process only."""
    from torchtitan.components.loss import CrossEntropyLoss
    from torchtitan.components.optimizer import default_adamw
    from torchtitan.config import CommConfig, DebugConfig, ParallelismConfig, TrainingConfig
    from torchtitan.distributed.activation_checkpoint import SelectiveAC
    from torchtitan.experiments.torchft.llama3 import model_registry
    from torchtitan.models.common.config_utils import decoder_vocab_size
    from torchtitan.tools.profiler import Profiler

    from training import checkpoints, cpu, dataset, healing, trainer

    recipe, settings = find(job.recipe), job.settings
    model_spec = model_registry(recipe.flavor)
    on_cpu = recipe.device == "cpu"
    if on_cpu:
        cpu.use_dense_attention(model_spec.model)
    parts: dict[str, Any] = healing.configs(settings.heal, settings.schedule)
    stock_saves = settings.checkpoint_every > 0 and settings.checkpoints == "stock"
    return trainer.ReplicaTrainer.Config(
        model_spec=model_spec,
        loss=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec)),
        hf_assets_path=settings.tokenizer or str(dataset.EMBEDDED_DATA),
        dump_folder=scratch,
        profiler=Profiler.Config(enable_profiling=False),
        metrics=trainer.StepMetrics.Config(log_freq=1),
        optimizer=parts["optimizer"](
            param_groups=default_adamw(lr=settings.learning_rate).param_groups, implementation="fused"
        ),
        lr_scheduler=parts["lr_scheduler"](
            warmup_steps=settings.warmup_steps, decay_ratio=settings.decay_ratio, min_lr_factor=0.1
        ),
        training=TrainingConfig(
            local_batch_size=settings.batch,
            seq_len=settings.seq_len,
            steps=job.steps,
            disable_cuda_graphs=True,
            dtype="float32" if on_cpu else "bfloat16",
            mixed_precision_param="float32" if on_cpu else "bfloat16",
        ),
        parallelism=ParallelismConfig(),
        dataloader=dataset.config(settings.data),
        checkpoint=parts["checkpoint"](
            enable=settings.heal != "off",  # TorchTitan's switch for both
            folder="disk/checkpoint",
            interval=settings.checkpoint_every if stock_saves else 10**9,
            keep_latest_k=checkpoints.KEEP,
            load_only=not stock_saves,
            enable_ft_dataloader_checkpoints=False,
        ),
        activation_checkpoint=None if on_cpu else SelectiveAC.Config(),
        comm=CommConfig(trace_buf_size=0, init_timeout_seconds=int(settings.quorum_timeout_s)),
        debug=DebugConfig(seed=settings.seed, enable_structured_logging=False),
        heal=settings.heal,
        non_finite=settings.non_finite,
        digest_every=settings.digest_every,
        log_every=settings.log_every,
        checkpoint_every=0 if stock_saves else settings.checkpoint_every,
        fault_tolerance=healing.FaultTolerance.Config(
            enable=True,
            process_group="gloo" if on_cpu else "nccl",
            process_group_timeout_ms=round(settings.process_group_timeout_s * 1000),
            replica_id=shard_of(member),
            group_size=job.replicas,
            min_replica_size=job.min_replicas,
            semi_sync_method=None,
            heal=settings.heal,
            init_sync=settings.init_sync,
            member=member,
            host=host,
            heal_host=heal_host,
            lighthouse=lighthouse,
            quorum_timeout_s=settings.quorum_timeout_s,
            quorum_retries=settings.quorum_retries,
            connect_timeout_s=settings.connect_timeout_s,
            heal_timeout_s=settings.heal_timeout_s,
        ),
    )
