"""The trainer of one replica: TorchTitan's FaultTolerantTrainer, told to heal right and to say what happens.

Step k is the k-th committed update. ``self.step`` of TorchTitan is kept at k while update k is tried, however often.
The batch of update k on a shard depends on k and the shard only: a step that is not committed is tried again with the
same batch, and what a dead replica's shard would have contributed while it was away is skipped, never made up later.
A replica that comes back goes on at the job's step (``dataset.Batches``). The model has no randomness
after its initial weights, which all replicas draw from one seed, so that no copy is needed at step 0.

Not here: how a trainer process starts and ends (``actor``), what is trained (``recipes``).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.experiments.torchft.trainer import FaultTolerantTrainer

from training import digest, events, guard, harm, healing, process, state
from training.announce import Place
from training.checkpoints import Checkpoints, plain
from training.dataset import Batches
from training.faultpoints import FaultPoints, Ordered
from training.manager import ReplicaManager
from training.observe import Observer, Votes

PLACE_EVERY_S = 5.0

log = logging.getLogger(__name__)


class StepMetrics(MetricsProcessor):  # type: ignore[misc]
    """TorchTitan's metrics, reduced to loss and gradient norm of the last step; events and our log say the rest."""

    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):  # type: ignore[misc]
        pass

    loss: float | None = None
    grad_norm: float | None = None

    def log(self, step: int, loss: float, max_loss: float, grad_norm: float, extra_metrics: Any = None) -> None:
        self.loss, self.grad_norm = loss, grad_norm
        self.data_loading_times.clear()


class ReplicaTrainer(FaultTolerantTrainer):  # type: ignore[misc]
    """One replica. Build it, give it to ``run``."""

    @dataclass(kw_only=True, slots=True)
    class Config(FaultTolerantTrainer.Config):  # type: ignore[misc]
        heal: str
        non_finite: str
        digest_every: int
        log_every: int
        checkpoint_every: int

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        assert self.gradient_accumulation_steps == 1, "one batch per update: the batch of update k is batch k"
        self.manager: ReplicaManager = self.ft_manager.manager
        self.stop_step: int | None = None
        self.committed = False
        self._points = FaultPoints()
        self._checkpoints: Checkpoints | None = None
        self._rate_used = 0.0
        self._batch = 0
        self.batches = Batches(self.dataloader, super().batch_generator)
        self._place: Place | None = None
        self._place_due_s = 0.0
        self.optimizers.optimizers[0].register_step_pre_hook(self._note_rate)
        if config.non_finite == "discard":
            self.manager.set_check(self._finite)
        if config.heal == "cached":
            self.manager.hand_over(self._state, self._take_state)

    @property
    def replica_id(self) -> str:
        """TorchFT's id of this life: ``name:uuid``."""
        return str(self.manager._logger._replica_id)

    def device_name(self) -> str:
        """Name of the device, for people."""
        on_gpu = self.device.type == "cuda"
        return str(torch.cuda.get_device_name(self.device) if on_gpu else self.device.type)

    def parameter_count(self) -> int:
        return sum(parameter.numel() for part in self.model_parts for parameter in part.parameters())

    def warm_up(self) -> None:
        """Make a step for nothing: what is compiled or allocated at the first one is so before anybody waits for it.

        From a reader of its own, and without an exchange.
        """
        self.manager.report_error(RuntimeError("a warm-up is exchanged with nobody"))
        degree, rank = self.ft_manager.get_dp_info(1, 0)
        training = self.config.training
        reader = self.config.dataloader.build(
            dp_world_size=degree,
            dp_rank=rank,
            tokenizer=self.tokenizer,
            seq_len=training.seq_len,
            local_batch_size=training.local_batch_size,
        )
        inputs, labels = next(iter(reader))
        inputs = {name: value.to(self.device) for name, value in inputs.items()}
        tokens = torch.tensor(labels.numel(), device=self.device)
        super().forward_backward_step(input_dict=inputs, labels=labels.to(self.device), global_valid_tokens=tokens)
        for part in self.model_parts:
            part.zero_grad(set_to_none=True)

    def run(
        self, writer: events.Writer, points: FaultPoints, started: Callable[[], None], tell: Callable[[Place], None]
    ) -> None:
        """Train until all steps are committed or a stop was asked for. ``started`` is called when it is about to;
        ``tell`` is told now and then how to go on reading.
        """
        self._points = points
        self.manager.set_points(points)
        if self.config.checkpoint_every:
            self._checkpoints = Checkpoints(Path(self.config.dump_folder, "disk"), self._in_checkpoint)
        self._emit = writer.emit
        self._votes = Votes().listen()
        self._observer = Observer(writer.emit, self._digest_now)
        self.manager.set_watch(self._observer)
        self._live = state.entries(self.model_parts, self.optimizers.optimizers)  # which digests look up anew
        self._cache_state()
        self._tell_place = tell
        self.batches.at(self._wanted())  # before anybody waits
        started()
        self.manager.join()
        self.train()

    def stop(self, after_step: int) -> None:
        """Commit nothing beyond update ``after_step``, and end; callable from any thread."""
        self.stop_step = after_step
        self.manager.end_after(after_step)

    def should_continue_training(self) -> bool:
        committed = self.manager.current_step()
        stop_step = self.stop_step
        return committed < self.config.training.steps and (stop_step is None or committed < stop_step)

    def batch_generator(self, _: Any) -> Iterator[Any]:
        while True:
            self._points.at("in_dataload", self.manager.current_step() + 1)
            number, (inputs, labels) = self.batches.at(self._wanted())
            self._batch = number + 1
            yield dict(inputs), labels

    def _wanted(self) -> int:
        """The number of the next batch to train: not one of an update that the job has made."""
        return int(max(self.manager.current_step(), self.manager.made_step))

    def train_step(self, data_iterator: Iterator[Any]) -> None:
        began, tokens_before = time.monotonic(), self.ntokens_seen
        self.metrics_processor.loss = self.metrics_processor.grad_norm = None
        self._votes.last = None
        self._rate_used = self._rate()
        super().train_step(data_iterator)
        committed = self._committed()
        if committed:
            self.committed, self.manager.waits.step_s = True, time.monotonic() - began
        if committed and "flip_weight" in self._points.at("after_commit", committed):
            harm.flip_weight(list(self.model_parts[-1].parameters())[-1])
        self._report(time.monotonic() - began, self.ntokens_seen - tokens_before)
        self.step = self.manager.current_step()
        self._cache_state()
        self._write_checkpoint(committed)
        if self._place is not None and committed >= self._place.read:
            self._tell_place(self._place)
            self._place = None

    def forward_backward_step(self, **batch: Any) -> torch.Tensor:
        self._points.at("in_forward", self.manager.current_step() + 1)
        loss: torch.Tensor = super().forward_backward_step(**batch)
        if self._place is None and time.monotonic() > self._place_due_s:
            self._place = self.batches.place()
            self._place_due_s = time.monotonic() + PLACE_EVERY_S
        self.batches.read_ahead()  # while a GPU is busy, and waits for nothing
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.step = self.manager.current_step()

    def _committed(self) -> int:
        """The update that the last try committed; 0 when it was not."""
        vote = self._votes.last
        return vote.step + 1 if vote is not None and vote.committed else 0

    def _write_checkpoint(self, committed: int) -> None:
        """When one is due. A disk that takes none is no reason to stop training."""
        if self._checkpoints is None or not committed or committed % self.config.checkpoint_every:
            return
        try:
            self._checkpoints.write(committed, plain(self.manager.state()))
        except (OSError, Ordered) as error:
            log.error("no checkpoint of step %d: %s", committed, error)

    def _in_checkpoint(self) -> bool:
        return "corrupt" in self._points.at("in_checkpoint", self.manager.current_step())

    def _report(self, duration_s: float, tokens: int) -> None:
        vote = self._votes.last
        assert vote is not None, "a step without a vote"
        healing = not self.manager.is_participating()
        step, every = vote.step + 1, self.config.digest_every
        due = self._observer.changed() or (every and step % every == 0)
        event = events.Step(
            step=step,
            committed=vote.committed,
            quorum_id=vote.quorum_id,
            participants=self.manager.num_participants(),
            healing=healing,
            loss=self.metrics_processor.loss,
            grad_norm=self.metrics_processor.grad_norm,
            tokens=tokens if vote.committed and not healing else 0,
            lr=self._rate_used,
            duration_s=duration_s,
            digest=self._digest_now() if vote.committed and due else None,
            error=None if vote.committed else self._why_not(),
            batch=self._batch,
            gradient_scale=self.manager.gradient_scale(),
            rss_bytes=process.resident_bytes(),
        )
        self._emit(event)
        if event.committed and step % self.config.log_every == 0:
            log.info("step %d: loss %.4f, %d participants, %.2f s", step, event.loss, event.participants, duration_s)

    def _why_not(self) -> str:
        error = self.manager.errored()
        if error is not None:
            text = str(error.original_exception).partition("\n")[0].partition(". This is typically")[0]
            return f"{type(error.original_exception).__name__}: {text}"[:300]
        there, needed = self.manager.num_participants(), self.manager._min_replica_size
        return "voted against" if there >= needed else f"{there} participants, at least {needed} needed"

    def _digest_now(self) -> str | None:
        if not self.config.digest_every:
            return None
        entries = state.entries(self.model_parts, self.optimizers.optimizers)
        return digest.digest(entries | {"step": self.manager.current_step()})

    def _state(self) -> dict[str, Any]:
        return {
            "live": self._live | state.rates(self.optimizers.optimizers),
            "lr_scheduler": self.lr_schedulers.state_dict(),
            "train_state": self.state_dict(),
        }

    def _take_state(self, given: dict[str, Any]) -> None:
        state.take(given["live"], self.model_parts, self.optimizers.optimizers)
        self.lr_schedulers.load_state_dict(given["lr_scheduler"])
        self.load_state_dict(given["train_state"])

    def _cache_state(self) -> None:
        if self.config.heal in healing.CACHED:
            self.manager.cache_state()

    def _finite(self) -> bool:
        return guard.finite(parameter.grad for part in self.model_parts for parameter in part.parameters())

    def _rate(self) -> float:
        return float(self.optimizers.optimizers[0].param_groups[0]["lr"])

    def _note_rate(self, *_: Any) -> None:
        self._rate_used = self._rate()


def open_store(host: str) -> TCPStore:
    """The store of this replica, on a free port, told to torch and TorchFT by the environment. Keep the result."""
    store = TCPStore(host, 0, is_master=True, wait_for_workers=False, multi_tenant=True)
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(store.port), **rank)
    return store
