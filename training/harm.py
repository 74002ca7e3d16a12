"""What a fault point does to tensors: one element of this rank's part, chosen by rule, so that a run can be repeated.

* ``put_nan``: the first element.
* ``flip_gradient``: the highest exponent bit of the largest element. A number below 2 becomes huge, about 1e36 times:
  what gradient clipping and checks for finite numbers are for.
* ``flip_weight``: the lowest exponent bit of the largest element, which doubles or halves: nothing overflows and
  nothing notices.
"""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor

# Type of the same size, lowest and highest bit of the exponent.
EXPONENTS = {
    torch.float64: (torch.int64, 52, 62),
    torch.float32: (torch.int32, 23, 30),
    torch.bfloat16: (torch.int16, 7, 14),
    torch.float16: (torch.int16, 10, 14),
}


def put_nan(tensor: torch.Tensor) -> None:
    """Make one element NaN, in place."""
    _own(tensor)[0] = float("nan")


def flip_gradient(tensor: torch.Tensor) -> None:
    """Flip one bit, in place: a wrong number that is seen."""
    own = _own(tensor)
    _flip(own, EXPONENTS[own.dtype][2])


def flip_weight(tensor: torch.Tensor) -> None:
    """Flip one bit, in place: a wrong number that is not seen."""
    own = _own(tensor)
    _flip(own, EXPONENTS[own.dtype][1])


def _flip(own: torch.Tensor, bit: int) -> None:
    element = own.view(EXPONENTS[own.dtype][0])[int(own.abs().argmax())]
    element ^= 1 << bit


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's elements as one row, sharing their memory."""
    plain = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return plain.detach().view(-1)
