"""Prints how many operations per second one process with one thread makes in products of matrices.

python -m tests.benchmarks.layers.peak
"""

from __future__ import annotations

import time

import torch

SIZE, WARM_UP_S, MEASURED_S = 1024, 2.0, 3.0


def flops(for_s: float) -> float:
    one = torch.rand(SIZE, SIZE)
    began_s, count = time.perf_counter(), 0
    while (lasted_s := time.perf_counter() - began_s) < for_s:
        one @ one
        count += 1
    return 2 * SIZE**3 * count / lasted_s


if __name__ == "__main__":
    torch.set_num_threads(1)
    flops(WARM_UP_S)
    print(flops(MEASURED_S))
