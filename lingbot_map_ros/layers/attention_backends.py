# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Attention over a page table: FlashInfer on NVIDIA GPUs, gather-and-SDPA anywhere.

Both read the same pages and give the same answer up to rounding. ``plan`` is called once for a page
table, ``run`` once for each block that has it.
"""

import importlib.util
import logging
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from lingbot_map_ros.errors import BackendUnavailableError, ConfigurationError
from lingbot_map_ros.layers.page_table import PageTable

logger = logging.getLogger(__name__)

BACKENDS = ("auto", "flashinfer", "sdpa")
WORKSPACE_BYTES = 128 * 1024 * 1024
_FLASHINFER_DTYPES = (torch.float16, torch.bfloat16)
_FLASHINFER_HEAD_DIMS = (64, 128, 256)


class AttentionBackend(Protocol):
    """Full attention of a frame's queries over the visible pages of one block."""

    def plan(self, table: PageTable, num_queries: int) -> None:
        """Prepare for ``num_queries`` queries over ``table``."""

    def run(self, q: Tensor, kv: Tensor) -> Tensor:
        """Attend: ``q [n, heads, head_dim]``, ``kv [2, pages, page_size, heads, head_dim]``."""


class GatherSdpaBackend:
    """Gathers the visible rows and runs PyTorch's attention: any device, any floating dtype."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._rows = torch.empty(0, dtype=torch.int64, device=device)

    def plan(self, table: PageTable, num_queries: int) -> None:
        """Upload the visible rows of ``table``."""
        self._rows = torch.from_numpy(table.visible_rows()).to(self._device)

    def run(self, q: Tensor, kv: Tensor) -> Tensor:
        """Attend over the gathered rows; same shape and dtype as ``q``."""
        k, v = kv.flatten(1, 2).index_select(1, self._rows).transpose(1, 2).to(q.dtype)
        # With a batch axis PyTorch takes its fused kernels, which never store the score matrix.
        out = F.scaled_dot_product_attention(q.transpose(0, 1)[None], k[None], v[None])
        return out[0].transpose(0, 1)


class FlashInferBackend:
    """FlashInfer's paged prefill kernel (``fa2`` or ``fa3``), planned once for all blocks."""

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        kernel: str,
    ) -> None:
        import flashinfer

        self._shape = {
            "num_qo_heads": num_heads,
            "num_kv_heads": num_heads,
            "head_dim_qk": head_dim,
            "q_data_type": dtype,
            "kv_data_type": dtype,
        }
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self._wrapper: Any = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
            self._workspace, kv_layout="NHD", backend=kernel
        )

    def plan(self, table: PageTable, num_queries: int) -> None:
        """Plan the kernel for ``table``; host tensors, since the planner runs on the host."""
        pages = torch.tensor(table.visible, dtype=torch.int32)
        self._wrapper.plan(
            torch.tensor([0, num_queries], dtype=torch.int32),
            torch.tensor([0, len(pages)], dtype=torch.int32),
            pages.to(self._workspace.device, non_blocking=True),
            torch.tensor([table.last_page_len], dtype=torch.int32),
            page_size=table.layout.page_size,
            causal=False,
            pos_encoding_mode="NONE",
            **self._shape,
        )

    def run(self, q: Tensor, kv: Tensor) -> Tensor:
        """Attend with the current plan."""
        return self._wrapper.run(q, (kv[0], kv[1]))


def flashinfer_obstacles(device: torch.device, dtype: torch.dtype, head_dim: int) -> list[str]:
    """Everything that keeps FlashInfer from serving this cache; empty when it can."""
    obstacles = []
    if device.type != "cuda":
        obstacles.append(f"FlashInfer needs an NVIDIA GPU and the device is '{device}'")
    elif not torch.cuda.is_available():
        obstacles.append("FlashInfer needs CUDA and this PyTorch sees no GPU")
    if dtype not in _FLASHINFER_DTYPES:
        obstacles.append(f"FlashInfer takes float16 or bfloat16, not {dtype}")
    if head_dim not in _FLASHINFER_HEAD_DIMS:
        obstacles.append(
            f"FlashInfer takes head dimensions {_FLASHINFER_HEAD_DIMS}, not {head_dim}"
        )
    if importlib.util.find_spec("flashinfer") is None:
        obstacles.append("flashinfer is not installed (pip install flashinfer-python)")
    return obstacles


def check_backend(
    name: str, *, head_dim: int, dtype: torch.dtype, device: torch.device, fa3: bool = False
) -> str:
    """Why the gather-and-SDPA path would serve a cache; empty if FlashInfer would.

    Raises ``ConfigurationError`` for an unknown name and ``BackendUnavailableError`` when
    FlashInfer was asked for and cannot run, or the dtype cannot be cached.
    """
    if name not in BACKENDS:
        raise ConfigurationError(f"attention back end '{name}' is none of {', '.join(BACKENDS)}")
    if not dtype.is_floating_point:
        raise BackendUnavailableError(f"a key/value cache cannot be of {dtype}; use a float dtype")
    if name == "sdpa":
        return "as chosen"
    obstacles = flashinfer_obstacles(device, dtype, head_dim)
    if fa3 and not obstacles and torch.cuda.get_device_capability(device)[0] != 9:
        obstacles.append("the FA3 kernel needs a Hopper GPU (compute capability 9)")
    if name == "flashinfer" and obstacles:
        raise BackendUnavailableError(
            f"{'; '.join(obstacles)}; choose the gather-and-SDPA path (use_sdpa=True, "
            "backend='sdpa' or attention_backend: sdpa)"
        )
    return "; ".join(obstacles)


def build_backend(
    name: str,
    *,
    num_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
    fa3: bool = False,
) -> AttentionBackend:
    """Build the back end ``name`` (``auto``, ``flashinfer`` or ``sdpa``), logging the reason.

    Raises what ``check_backend`` raises.
    """
    reason = check_backend(name, head_dim=head_dim, dtype=dtype, device=device, fa3=fa3)
    if reason:
        logger.info("attention back end: sdpa (%s)", reason)
        return GatherSdpaBackend(device)
    kernel = "fa3" if fa3 else "fa2"
    logger.info("attention back end: flashinfer %s on %s, %s", kernel, device, dtype)
    return FlashInferBackend(
        num_heads=num_heads, head_dim=head_dim, dtype=dtype, device=device, kernel=kernel
    )
