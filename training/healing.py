"""Healing that is right: what a rejoining replica receives is exactly what its donor has, rate and step included.

With ``heal=cached`` the main thread notes after every step what its state is (``ReplicaManager.cache_state``: the live
tensors of ``state``), the quorum thread only hands that out, and the rate is a function of the committed step
(``CommittedSchedule``).

Stock TorchTitan 0.3 with TorchFT 0.2 gets this wrong in several ways. Each stays reachable, for experiments on it:
  * ``heal=stock``: the donor collects its state on TorchFT's quorum thread while its own forward pass moves the
    weights under it (torchtitan#4753), and has the next fault as well;
  * ``heal=stale_rate``: the optimizer hands out the parameter groups of build time, so a healed replica's first step
    has an old rate (torchtitan#4598); hidden by ``schedule=committed``, which sets the rate after a heal;
  * ``heal=stale_weights``: the cache of the weights is handed out as it is, with copies of the fused ones from build
    time; TorchTitan did so before torchtitan#3675, and so does who takes that cache to get around the first fault;
  * ``heal=off``: with its checkpoints off, TorchTitan gives TorchFT no state to hand out at all (torchtitan#4212);
  * ``schedule=tries``: the rate follows the tries of a trainer, not the commits, so replicas with different discards
    drift apart.

The cache holds references, not copies: parameters change only in the optimizer step, which TorchFT's commit vote keeps
back until every reader of the served state is done. Not here: when to cache and what to report (``trainer``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torchft
from torchtitan.components.checkpointer.base import MODEL, ModelWrapper
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer
from torchtitan.experiments.torchft.checkpoint import TorchFTCheckpointManager
from torchtitan.experiments.torchft.config.job_config import FaultTolerance as TitanFaultTolerance
from torchtitan.experiments.torchft.manager import TorchFTManager
from torchtitan.experiments.torchft.optimizer import TorchFTOptimizersContainer

from training.groups import LeavableGloo
from training.manager import AdvertisedTransport, ReplicaManager
from training.waits import Waits

CACHED = ("cached", "stale_rate", "stale_weights")
"""The ways of healing in which the main thread caches the state."""

# TorchFT lets these win over what it is told; here the settings of the job win.
OVERRIDES = (
    "TORCHFT_TIMEOUT_SEC",
    "TORCHFT_QUORUM_TIMEOUT_SEC",
    "TORCHFT_CONNECT_TIMEOUT_SEC",
    "TORCHFT_QUORUM_RETRIES",
    "TORCHFT_MANAGER_PORT",
)


class FaultTolerance(TorchFTManager):  # type: ignore[misc]
    """TorchTitan's fault tolerance for one replica; names and timeouts are given, not found in the environment."""

    @dataclass(kw_only=True, slots=True)
    class Config(TitanFaultTolerance):  # type: ignore[misc]
        heal: str
        init_sync: bool
        member: str
        host: str
        heal_host: str
        lighthouse: str
        quorum_timeout_s: float
        quorum_retries: int
        connect_timeout_s: float
        heal_timeout_s: float

    def __init__(self, config: Config) -> None:
        for name in OVERRIDES:
            os.environ.pop(name, None)
        timeout = timedelta(seconds=config.process_group_timeout_ms / 1000)
        waits = Waits()
        on_gloo = config.process_group == "gloo"
        heal_timeout = timedelta(seconds=config.heal_timeout_s)
        self.use_async_quorum = True
        self.group_size = config.group_size
        self.replica_id = config.replica_id
        self._manager = ReplicaManager(
            leave_on_error=config.heal != "stock" and on_gloo,
            waits=waits,
            pg=LeavableGloo(timeout, waits) if on_gloo else torchft.ProcessGroupNCCL(timeout=timeout),
            min_replica_size=config.min_replica_size,
            load_state_dict=None,
            state_dict=None,
            use_async_quorum=True,
            init_sync=config.init_sync,
            timeout=heal_timeout,
            quorum_timeout=timedelta(seconds=config.quorum_timeout_s),
            connect_timeout=timedelta(seconds=config.connect_timeout_s),
            quorum_retries=config.quorum_retries,
            lighthouse_addr=config.lighthouse,
            replica_id=config.member,
            hostname=config.host,
            checkpoint_transport=AdvertisedTransport(timeout=heal_timeout, host=config.heal_host),
        )
        self.replicate_pg = torchft.process_group.ManagedProcessGroup(self._manager)
        self.replicate_pg.register("dp_replicate")


class CurrentOptimizers(TorchFTOptimizersContainer):  # type: ignore[misc]
    """TorchTitan's fault-tolerant optimizers, whose state dict is the state of now, not of build time."""

    @dataclass(kw_only=True, slots=True)
    class Config(TorchFTOptimizersContainer.Config):  # type: ignore[misc]
        pass

    def init_cache_state_dict(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = OptimizersContainer.state_dict(self)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        OptimizersContainer.load_state_dict(self, state_dict)


class CommittedSchedule(LRSchedulersContainer):  # type: ignore[misc]
    """A learning rate that is a function of the number of committed updates, on every replica the same."""

    @dataclass(kw_only=True, slots=True)
    class Config(LRSchedulersContainer.Config):  # type: ignore[misc]
        def build(self, *, optimizers: Any, training_steps: int) -> CommittedSchedule:
            stock = LRSchedulersContainer.Config.build(self, optimizers=optimizers, training_steps=training_steps)
            return CommittedSchedule(optimizers, stock.schedulers[0].lr_lambdas[0])

    def __init__(self, optimizers: Any, factor: Any) -> None:
        super().__init__(optimizers, factor)
        self._manager: ReplicaManager = optimizers._ft_optimizer.manager

    def step(self) -> None:
        """Called after every try: the rate for the update that comes next."""
        self.set_step(self._manager.current_step())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.set_step(state_dict["last_epoch"])

    def set_step(self, committed: int) -> None:
        """Set the rate of update ``committed + 1`` in all parameter groups."""
        for scheduler in self.schedulers:
            scheduler.last_epoch = committed
            factors = [factor(committed) for factor in scheduler.lr_lambdas]
            scheduler._last_lr = [base * factor for base, factor in zip(scheduler.base_lrs, factors, strict=True)]
            for group, rate in zip(scheduler.optimizer.param_groups, scheduler._last_lr, strict=True):
                group["lr"] = rate


class BuildTimeWeights(ModelWrapper):  # type: ignore[misc]
    """TorchTitan's view of the weights as it was before torchtitan#3675: collected once, fused ones as copies."""

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self.cached_state_dict
        return state


class BuildTimeCheckpoints(TorchFTCheckpointManager):  # type: ignore[misc]
    """TorchTitan's checkpoint manager, which registers what heals hand out, with ``BuildTimeWeights``."""

    @dataclass(kw_only=True, slots=True)
    class Config(TorchFTCheckpointManager.Config):  # type: ignore[misc]
        pass

    def __init__(self, config: Config, *, model_parts: list[torch.nn.Module], **arguments: Any) -> None:
        super().__init__(config, model_parts=model_parts, **arguments)
        self.states[MODEL] = BuildTimeWeights(model_parts)


def configs(heal: str, schedule: str) -> dict[str, Any]:
    """The configuration classes for these settings."""
    stale_rate, stale_weights = heal in ("stock", "stale_rate"), heal == "stale_weights"
    return {
        "optimizer": TorchFTOptimizersContainer.Config if stale_rate else CurrentOptimizers.Config,
        "lr_scheduler": CommittedSchedule.Config if schedule == "committed" else LRSchedulersContainer.Config,
        "checkpoint": BuildTimeCheckpoints.Config if stale_weights else TorchFTCheckpointManager.Config,
    }
