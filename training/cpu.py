"""What TorchTitan 0.3 needs to train on a CPU: a device module, a memory monitor and an attention with a CPU backward.

``install()`` must run before any other TorchTitan module is imported, because the others copy the names.
Nothing here is used on a GPU. Not here: process groups (TorchFT's Gloo) and the model, which are the real ones.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def install() -> None:
    """Make TorchTitan's idea of "the device" the CPU, in this process."""
    import torch

    torch.compile = uncompiled
    from torchtitan.tools import utils

    device_module = types.ModuleType("torchtitan_cpu_device")
    device_module.__dict__.update({name: getattr(torch.cpu, name) for name in dir(torch.cpu) if name[0] != "_"})
    device_module.__dict__["current_device"] = lambda: 0  # TorchTitan hands it to barrier(device_ids=[...])
    utils.device_type = "cpu"
    utils.device_module = device_module
    utils.get_local_device = lambda: torch.device("cpu")

    from torchtitan.components import metrics

    metrics.build_device_memory_monitor = CpuMemoryMonitor


def uncompiled(function: Any = None, **options: Any) -> Any:
    """Stands in for torch.compile, which is switched off here (``workload``): to ask for it alone takes the import of
    a whole compiler, a third of a trainer's imports.
    """
    return function if function is not None else lambda later: later


class CpuMemoryMonitor:
    """Stands in for TorchTitan's DeviceMemoryMonitor, which asks CUDA; reports nothing."""

    device_name = "cpu"

    def get_peak_stats(self) -> Any:
        from torchtitan.components.metrics import DeviceMemStats

        return DeviceMemStats(0.0, 0.0, 0.0, 0.0, 0, 0)

    def reset_peak_stats(self) -> None: ...


def use_dense_attention(model_config: Any) -> None:
    """Put dense attention where the model has FlexAttention: flex has no backward on the CPU."""
    from torchtitan.models.common.attention import FlexAttention

    dense = dense_attention()
    for _name, found, parent, field in list(model_config.traverse(FlexAttention.Config)):
        setattr(parent, field, dense.Config(block_size=found.block_size))


def dense_attention() -> type[Any]:
    """A FlexAttention that computes the same attention by scaled_dot_product_attention and a dense mask.

    It stays a FlexAttention, so that TorchTitan builds the packed-document mask for it. Shapes: B batch, L sequence,
    N heads, H head dimension.
    """
    import torch
    import torch.nn.functional as F
    from torch.nn.attention.flex_attention import create_mask
    from torchtitan.models.common.attention import FlexAttention

    class DenseAttention(FlexAttention):  # type: ignore[misc]
        @dataclass(kw_only=True, slots=True)
        class Config(FlexAttention.Config):  # type: ignore[misc]
            pass

        def forward(
            self,
            q_BLNH: torch.Tensor,
            k_BLNH: torch.Tensor,
            v_BLNH: torch.Tensor,
            *,
            attention_masks: Any,
            scale: float | None = None,
            enable_gqa: bool = False,
            out_transform: Callable[..., torch.Tensor] | None = None,
            **_: Any,
        ) -> torch.Tensor:
            assert out_transform is None, "no log-sum-exp from scaled_dot_product_attention"
            query, key, value = (x.transpose(1, 2) for x in (q_BLNH, k_BLNH, v_BLNH))
            mask = self._dense_mask(attention_masks, query)
            out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=enable_gqa)
            return out.transpose(1, 2)

        @staticmethod
        def _dense_mask(block_mask: Any, query: torch.Tensor) -> torch.Tensor:
            """Made once per batch and kept on the block mask, which all layers share: it costs as much as a layer."""
            known: torch.Tensor | None = getattr(block_mask, "dense", None)
            if known is None:
                batch, _heads, length, _dim = query.shape
                known = create_mask(block_mask.mask_mod, batch, None, length, length, device=query.device)
                block_mask.dense = known
            return known

    return DenseAttention
