"""TorchTitan's own trainer on the job of a recipe: its data parallelism, no TorchFT, nothing of ours in a step.

    torchrun --nproc-per-node 2 -m tests.benchmarks.layers.plain JOB_JSON FOLDER

What a rank did stands in FOLDER/events, as the trainers of a job write theirs. Loss and norm are told at every tenth
step, as is TorchTitan's habit, for which ranks must exchange them. One thing is as with TorchFT, or losses would not
compare: the optimizer has made a step without a gradient beforehand, which Adam counts.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from training import cpu, events, recipes
from training.settings import Job

LOG_EVERY = 10


class Built(events.Event, frozen=True, kw_only=True):
    """A rank is about to train. ``peak_flops``: of its device, as TorchTitan knows it."""

    parameters: int
    flops_per_token: int
    peak_flops: float


class Step(events.Event, frozen=True, kw_only=True):
    """A step of a rank; loss and norm are those of all ranks."""

    step: int
    loss: float | None
    grad_norm: float | None


def train(job: Job, folder: Path) -> None:
    """The rank that the environment says, to its last step."""
    on_cpu = recipes.find(job.recipe).device == "cpu"
    if on_cpu:
        cpu.install()
    from torchtitan.components.checkpoint_utils import init_optim_state
    from torchtitan.components.checkpointer import CheckpointManager
    from torchtitan.components.metrics import MetricsProcessor
    from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer
    from torchtitan.config import ParallelismConfig
    from torchtitan.trainer import Trainer

    class Metrics(MetricsProcessor):  # type: ignore[misc]
        """Keeps the last loss and norm."""

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(MetricsProcessor.Config):  # type: ignore[misc]
            pass

        last: tuple[float | None, float | None] = (None, None)

        def log(self, step: int, loss: float, max_loss: float, grad_norm: float, extra_metrics: Any = None) -> None:
            self.last = (loss, grad_norm)
            self.data_loading_times.clear()

    class RankTrainer(Trainer):  # type: ignore[misc]
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(Trainer.Config):  # type: ignore[misc]
            pass

        def train_step(self, data_iterator: Any) -> None:
            self.metrics_processor.last = (None, None)
            super().train_step(data_iterator)
            loss, grad_norm = self.metrics_processor.last
            writer.emit(Step(step=self.step, loss=loss, grad_norm=grad_norm))

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ours = recipes.trainer_config(
        job, member=f"replica-{rank}", host="", heal_host="", lighthouse="", scratch=str(folder)
    )
    theirs = {field.name: getattr(ours, field.name) for field in dataclasses.fields(Trainer.Config)}
    schedule = ours.lr_scheduler
    theirs |= {
        "metrics": Metrics.Config(log_freq=LOG_EVERY),
        "optimizer": OptimizersContainer.Config(
            param_groups=ours.optimizer.param_groups, implementation=ours.optimizer.implementation
        ),
        "lr_scheduler": LRSchedulersContainer.Config(
            warmup_steps=schedule.warmup_steps,
            decay_ratio=schedule.decay_ratio,
            min_lr_factor=schedule.min_lr_factor,
        ),
        "checkpoint": CheckpointManager.Config(enable=False),
        "parallelism": ParallelismConfig(data_parallel_replicate_degree=ranks, data_parallel_shard_degree=1),
    }
    (folder / "events").mkdir(parents=True, exist_ok=True)
    writer = events.Writer(folder / "events" / f"rank-{rank}.jsonl", member=f"replica-{rank}", incarnation=1)
    trainer = RankTrainer(RankTrainer.Config(**theirs))
    for optimizer in trainer.optimizers:
        init_optim_state(optimizer)
    writer.emit(
        Built(
            parameters=sum(one.numel() for part in trainer.model_parts for one in part.parameters()),
            flops_per_token=int(trainer.metrics_processor.num_flops_per_token),
            peak_flops=0.0 if on_cpu else trainer.metrics_processor.gpu_peak_flops,
        )
    )
    trainer.train()
    trainer.close()


if __name__ == "__main__":
    train(msgspec.json.decode(sys.argv[1], type=Job), Path(sys.argv[2]))
