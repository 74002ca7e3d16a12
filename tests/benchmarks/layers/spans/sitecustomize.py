"""Times the parts of a trainer's step from outside: with this folder on PYTHONPATH and SPANS naming a folder.

Python imports this by itself in every process; without SPANS it does nothing. A part has the time that no part within
it has; what none has is the rest. Each process that trains writes the seconds of its steps after SPANS_SKIP to a file.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

STEP, DATA = "rest", "data"
PARTS: dict[str, dict[str, str]] = {
    "torchtitan.trainer": {
        "Trainer.train_step": STEP,
        "Trainer.batch_generator": DATA,
        "Trainer.forward_backward_step": "forward, backward",
        "OptimizersContainer.step": "optimizer",
        "OptimizersContainer.zero_grad": "optimizer",
        "dist_utils.clip_grad_norm_": "gradient norm",
        "dist_utils.dist_sum_tensor": "exchange",
        "dist_utils.dist_sum": "exchange",
        "dist_utils.dist_max": "exchange",
        "torch.distributed.all_reduce": "exchange",
    },
    "training.groups": {"Waited.wait": "exchange"},
    "training.manager": {
        "ReplicaManager.start_quorum": "quorum",
        "ReplicaManager.wait_quorum": "quorum",
        "ReplicaManager.should_commit": "vote",
        "ReplicaManager.gradient_scale": "check of the scale",
    },
    "training.trainer": {
        "ReplicaTrainer.train_step": STEP,
        "ReplicaTrainer._finite": "check of the norm",
        "ReplicaTrainer._digest_now": "digest",
        "ReplicaTrainer._cache_state": "state for heals",
        "events.Writer.emit": "event line",
    },
}
"""Module -> what is timed once it is imported, by its name there, and the part that it belongs to."""
WRITE_EVERY = 10


class Clock:
    """The parts of the steps that this process makes."""

    def __init__(self, folder: Path, skip: int) -> None:
        self._folder = folder
        self._skip = skip
        self._here = threading.local()
        self._spent_s: dict[str, float] = defaultdict(float)
        self._steps = 0

    def each_timed(self, part: str, make: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """Of a generator, what each item takes."""

        def made(*args: Any) -> Iterator[Any]:
            end = object()
            following = self.timed(part, functools.partial(next, make(*args), end))
            while (item := following()) is not end:
                yield item

        return made

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            inner = self._inner
            if part != STEP and not inner:
                return call(*args, **options)
            inner.append(0.0)
            began_s = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                lasted_s = time.perf_counter() - began_s
                self._spent_s[part] += lasted_s - inner.pop()
                if inner:
                    inner[-1] += lasted_s
                else:
                    self._stepped()

        return wrapped

    @property
    def _inner(self) -> list[float]:
        """Of each part that this thread is in, the time of the parts within it."""
        if not hasattr(self._here, "inner"):
            self._here.inner = []
        inner: list[float] = self._here.inner
        return inner

    def _stepped(self) -> None:
        self._steps += 1
        if self._steps == self._skip:
            self._spent_s.clear()
        elif self._steps > self._skip and self._steps % WRITE_EVERY == 0:
            told = {"steps": self._steps - self._skip, "seconds": self._spent_s}
            (self._folder / f"{os.getpid()}.json").write_text(json.dumps(told))


class Timing:
    """Finds the modules of ``PARTS`` like any finder, and has them timed when they are there."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = set(PARTS)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self._left:
            return None
        self._left.remove(name)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        make = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            make(module)
            for place, part in PARTS[name].items():
                *owners, last = place.split(".")
                owner = functools.reduce(getattr, owners, module)
                timed = self._clock.each_timed if part == DATA else self._clock.timed
                setattr(owner, last, timed(part, getattr(owner, last)))

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if folder := os.environ.get("SPANS"):
    sys.meta_path.insert(0, Timing(Clock(Path(folder), int(os.environ["SPANS_SKIP"]))))  # type: ignore[arg-type]
