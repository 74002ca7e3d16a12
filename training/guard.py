"""Whether an update is fit to be committed: its gradients had a norm that is a finite number.

One NaN in one replica's gradient is in every replica's after the exchange, and in every weight after the commit. All of
them see the same gradients, so all vote the same. A flipped bit that leaves the norm finite passes: nothing here can
tell it from a hard batch. A discarded step is tried again with the same batch; one that is the fault of the batch or of
the state fails for ever, as any step that cannot be committed does: nothing is lost, and nothing goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch.distributed.tensor import DTensor


def finite(clipped: Iterable[torch.Tensor | None]) -> bool:
    """Whether gradients that were clipped by their norm had a finite one.

    Clipping by one that is not makes each element 0 or NaN, so the smallest gradient that is not all 0 tells for all,
    at no cost.
    """
    there = [gradient for gradient in clipped if gradient is not None]
    own = [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in there]
    sizes = (float(gradient.abs().sum()) for gradient in sorted(own, key=torch.Tensor.numel))
    size = next((size for size in sizes if size != 0), 0.0)
    return math.isfinite(size) and size > 0
