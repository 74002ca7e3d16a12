"""Healing that is right: what a rejoining replica receives is exactly what its donor has, rate and step included.

With ``heal=cached`` the main thread collects the state after every step (``ReplicaManager.cache_state``), the quorum
thread only hands out that cache, and the rate is a function of the committed step (``CommittedSchedule``).

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
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torchft
from torchft.checkpointing import HTTPTransport
from torchft.utils import get_stream_context
from torchtitan.components.checkpointer.base import MODEL, ModelWrapper
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer
from torchtitan.experiments.torchft.checkpoint import TorchFTCheckpointManager
from torchtitan.experiments.torchft.config.job_config import FaultTolerance as TitanFaultTolerance
from torchtitan.experiments.torchft.manager import TorchFTManager
from torchtitan.experiments.torchft.optimizer import TorchFTOptimizersContainer

from training import harm
from training.faultpoints import FaultPoints, Ordered

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


# What replaces a replica's own gradient; one that heals has none.
HARMS = {"nan": harm.put_nan, "flip_gradient": harm.flip_gradient}


class Watch(Protocol):
    """What a manager tells, some of it on TorchFT's quorum thread."""

    def quorum(self, result: Any, state_step: int) -> None: ...
    def served(self, step: int, ranks: list[int]) -> None: ...
    def healed(self, step: int) -> None: ...


class AdvertisedTransport(HTTPTransport):  # type: ignore[misc]
    """TorchFT's HTTP transport, reached by the name we choose; upstream insists on ``gethostname()``."""

    def __init__(self, *, timeout: timedelta, host: str) -> None:
        self._host = host
        self.watch: Watch | None = None
        self.points = FaultPoints()
        super().__init__(timeout=timeout, num_chunks=0)
        self._server.RequestHandlerClass = self._serving(self._server.RequestHandlerClass)

    def address(self) -> str:
        return f"http://{self._host}:{self._server.socket.getsockname()[1]}/checkpoint/"

    def send_checkpoint(self, dst_ranks: list[int], step: int, state_dict: Any, timeout: timedelta) -> None:
        super().send_checkpoint(dst_ranks, step, state_dict, timeout)
        if self.watch is not None:
            self.watch.served(step, dst_ranks)

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> Any:
        self.points.at("in_heal", step + 1)
        return super().recv_checkpoint(src_rank, metadata, step, timeout)

    def _serving(self, stock: Any) -> Any:
        """TorchFT's request handler with a fault point between the head and the body of an answer, which is given on
        a thread of its own while the state is locked: the trainer goes on up to its next commit.
        """
        transport = self

        class Handler(stock):  # type: ignore[misc]
            def send_response(self, code: int, message: str | None = None) -> None:
                self.gives_state = code == 200
                super().send_response(code, message)

            def end_headers(self) -> None:
                super().end_headers()
                if self.gives_state:
                    transport.points.at("in_serve", transport._step + 1)

        return Handler


class WatchedClient:
    """TorchFT's manager client; shows every quorum result, which the manager itself does not keep, and may lie."""

    def __init__(self, client: Any, manager: ReplicaManager) -> None:
        self._client = client
        self._owner = manager

    def _quorum(self, **arguments: Any) -> Any:
        result = self._client._quorum(**arguments)
        if self._owner.watch is not None:
            self._owner.watch.quorum(result, self._owner.current_step())
        return result

    def should_commit(self, group_rank: int, step: int, vote: bool, timeout: timedelta) -> Any:
        if "lie" in self._owner.points.at("before_commit", step + 1):
            vote = not vote
        return self._client.should_commit(group_rank, step, vote, timeout=timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class ReplicaManager(torchft.Manager):  # type: ignore[misc]
    """TorchFT's manager with a state cache (used once ``cache_state`` was called) and a watch."""

    def __init__(self, *, leave_on_error: bool, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._leave_on_error = leave_on_error
        self._last_step: int | None = None
        self.watch: Watch | None = None
        self.points = FaultPoints()
        self._finite: Callable[[], bool] = lambda: True
        self._exchanging = False
        self._scale: tuple[Any, torch.Tensor, torch.Stream | None] | None = None
        self._cached_state: dict[str, object] | None = None
        self._client: Any = WatchedClient(self._client, self)

    def set_watch(self, watch: Watch) -> None:
        """From now on, tell ``watch``."""
        self.watch = self._checkpoint_transport.watch = watch

    def set_points(self, points: FaultPoints) -> None:
        """From now on, do what is ordered at these."""
        self.points = self._checkpoint_transport.points = points

    def set_check(self, finite: Callable[[], bool]) -> None:
        """From now on, vote against updates that are not ``finite``. Called between the exchange and the vote."""
        self._finite = finite

    def cache_state(self) -> None:
        """Collect the state to hand out. Main thread only, between two steps."""
        self._cached_state = super()._manager_state_dict()

    def state(self) -> dict[str, object]:
        """The state as a healing replica would get it. Main thread only, between two steps."""
        return self._manager_state_dict()

    def end_after(self, step: int) -> None:
        """Commit no update beyond ``step``: the others may be gone, and alone we would write a history of our own."""
        self._last_step = step

    def start_quorum(self, *args: Any, **options: Any) -> None:
        self._exchanging = False
        self._scale = None
        super().start_quorum(*args, **options)

    def allreduce(self, tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
        if not self._exchanging and self.errored() is None:
            self._exchanging = True
            self._begin_exchange(tensor)
            one = torch.ones(1, device=tensor.device)
            stream = torch.accelerator.current_stream() if torch.accelerator.is_available() else None
            self._scale = super().allreduce(one), one, stream
        return super().allreduce(tensor, *args, **options)

    def gradient_scale(self) -> float | None:
        """What a 1 of each replica came back as from this step's exchange, which scales gradients likewise.

        1 when the sum is divided by the number of those who contributed. None when nothing was exchanged, or in vain.
        """
        if self._scale is None or self.errored() is not None:
            return None
        work, one, stream = self._scale
        with get_stream_context(stream):  # that of the gradients: TorchFT wants no other to wait
            work.wait()
            return float(one)

    def _begin_exchange(self, gradient: torch.Tensor) -> None:
        """Fault points at the first exchange of a step; ``gradient`` is still this replica's own."""
        self.wait_quorum()
        step = self._step + 1
        without = () if self.is_participating() else HARMS
        for harmed in self.points.at("before_allreduce", step, without):
            HARMS[harmed](gradient)
        try:
            self.points.at("in_allreduce", step)
        except Ordered as error:  # as TorchFT takes an exception of the process group
            self._logger.exception(f"got exception in all reduce -- skipping remaining: {error}")
            self.report_error(error)

    def should_commit(self, timeout: timedelta | None = None) -> bool:
        if self._last_step is not None and self._step >= self._last_step:
            self.report_error(RuntimeError(f"the job ends after step {self._last_step}"))
        elif self.errored() is None and not self._finite():
            super().report_error(ArithmeticError("the gradient norm is not a finite number"))
        return bool(super().should_commit(timeout))

    def report_error(self, e: Exception) -> None:
        """Note the error; over Gloo, also leave the group, so that no peer waits for us until its timeout."""
        super().report_error(e)
        if self._leave_on_error:
            self._pg.abort()

    def _manager_state_dict(self) -> dict[str, object]:
        return super()._manager_state_dict() if self._cached_state is None else self._cached_state

    def _apply_pending_state_dict(self) -> None:
        received = self._pending_state_dict is not None
        super()._apply_pending_state_dict()
        if received and self.watch is not None:
            self.watch.healed(self._step)


class FaultTolerance(TorchFTManager):  # type: ignore[misc]
    """TorchTitan's fault tolerance for one replica; names and timeouts are given, not found in the environment."""

    @dataclass(kw_only=True, slots=True)
    class Config(TitanFaultTolerance):  # type: ignore[misc]
        heal: str
        init_sync: bool
        member: str
        host: str
        lighthouse: str
        quorum_timeout_s: float
        quorum_retries: int
        connect_timeout_s: float
        heal_timeout_s: float

    def __init__(self, config: Config) -> None:
        for name in OVERRIDES:
            os.environ.pop(name, None)
        timeout = timedelta(seconds=config.process_group_timeout_ms / 1000)
        groups = {"gloo": torchft.ProcessGroupGloo, "nccl": torchft.ProcessGroupNCCL}
        heal_timeout = timedelta(seconds=config.heal_timeout_s)
        self.use_async_quorum = True
        self.group_size = config.group_size
        self.replica_id = config.replica_id
        self._manager = ReplicaManager(
            leave_on_error=config.heal != "stock" and config.process_group == "gloo",
            pg=groups[config.process_group](timeout=timeout),
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
            checkpoint_transport=AdvertisedTransport(timeout=heal_timeout, host=config.host),
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
