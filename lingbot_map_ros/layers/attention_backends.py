# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Attention over a page table: FlashInfer on NVIDIA GPUs, gather-and-SDPA anywhere.

Both read the same pages and give the same answer up to rounding. ``plan`` is called once for a page
table, ``run`` once for each block that has it.
"""

import importlib.util
import logging
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from lingbot_map_ros.errors import BackendUnavailableError, ConfigurationError
from lingbot_map_ros.layers.page_table import PageLayout, PageTable

logger = logging.getLogger(__name__)

BACKENDS = ("auto", "flashinfer", "sdpa")
KERNELS = ("paged_fa2", "paged_fa3", "dense_fa2", "dense_fa3")
"""FlashInfer's kernels: over the page table, or over the pool as one dense tensor."""
_KEYS, _SCORES = 256, 1 << 20
"""Where no fused kernel is used: the keys of a product are a multiple of the one, and so many
scores lie in memory at a time."""
_FLASHINFER_DTYPES = (torch.float16, torch.bfloat16)
_FLASHINFER_HEAD_DIMS = (64, 128, 256)
_FLASHINFER_CAPABILITY = (7, 5)


class AttentionBackend(Protocol):
    """Full attention of a frame's queries over the visible pages of one block.

    ``capturable``: ``run`` may be recorded in a CUDA graph and serves later plans of as many
    queries when that is replayed.
    """

    capturable: bool

    def plan(self, table: PageTable, num_queries: int) -> None:
        """Prepare for ``num_queries`` queries over ``table``."""

    def run(self, q: Tensor, kv: Tensor) -> Tensor:
        """Attend: ``q [n, heads, head_dim]``, ``kv [2, pages, page_size, heads, head_dim]``."""


class GatherSdpaBackend:
    """PyTorch's attention over the visible rows: any device, any floating dtype.

    Rows that form one run are read in place, others are gathered first.
    """

    capturable = False

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._rows: Tensor | slice = slice(0, 0)

    def plan(self, table: PageTable, num_queries: int) -> None:
        """Take note of the visible rows of ``table``."""
        run = table.run
        self._rows = slice(*run) if run else torch.from_numpy(table.visible_rows()).to(self._device)

    def run(self, q: Tensor, kv: Tensor) -> Tensor:
        """Attend over the visible rows; same shape and dtype as ``q``."""
        rows = kv.flatten(1, 2)
        if isinstance(self._rows, slice):
            rows = rows[:, self._rows]
        else:
            rows = rows.index_select(1, self._rows)
        if q.device.type == "cpu" and q.dtype is not torch.float32:
            return _attend_by_heads(q, rows)
        q, k, v = (x.transpose(0, 1) for x in (q, *rows.to(q.dtype)))
        # With a batch axis PyTorch takes its fused kernels, which never store the scores.
        return F.scaled_dot_product_attention(q[None], k[None], v[None])[0].transpose(0, 1)


def _attend_by_heads(q: Tensor, rows: Tensor) -> Tensor:
    """Attend ``q [n, heads, head_dim]`` to ``rows [2, keys, heads, head_dim]``, head by head.

    PyTorch's fused kernel multiplies in float32 on a CPU, also where that has products of half
    precision, which are several times as fast. Those have code made and kept for every shape, so
    that keys are filled up to few different numbers.
    """
    (n, heads, dim), keys = q.shape, rows.shape[1]
    filled = -(-keys // _KEYS) * _KEYS
    k, v = kv = q.new_zeros(2, heads, filled, dim)
    kv[:, :, :keys] = rows.transpose(1, 2)
    queries = (q * dim**-0.5).transpose(0, 1)
    out = torch.empty_like(queries)
    some = max(1, _SCORES // filled)
    for head in range(heads):
        for part in (slice(i, i + some) for i in range(0, n, some)):
            scores = queries[head, part] @ k[head].T
            scores[:, keys:] = -torch.inf
            torch.mm(scores.softmax(-1), v[head], out=out[head, part])
    return out.transpose(0, 1)


def flashinfer_obstacles(device: torch.device, dtype: torch.dtype, head_dim: int) -> list[str]:
    """Everything that keeps FlashInfer from computing in ``dtype``; empty when it can."""
    obstacles = []
    if device.type != "cuda":
        obstacles.append(f"FlashInfer needs an NVIDIA GPU and the device is '{device}'")
    elif not torch.cuda.is_available():
        obstacles.append("FlashInfer needs CUDA and this PyTorch sees no GPU")
    elif torch.cuda.get_device_capability(device) < _FLASHINFER_CAPABILITY:
        obstacles.append("FlashInfer needs a GPU of compute capability 7.5 or later")
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
    name: str,
    *,
    head_dim: int,
    dtype: torch.dtype,
    cache_dtype: torch.dtype,
    device: torch.device,
    kernel: str = "auto",
) -> str:
    """Why the gather-and-SDPA path would serve a cache; empty if FlashInfer would.

    ``dtype`` is that of the queries. Raises ``ConfigurationError`` for an unknown name and
    ``BackendUnavailableError`` when FlashInfer or one of its kernels was asked for and cannot run,
    or the dtype cannot be cached.
    """
    if name not in BACKENDS:
        raise ConfigurationError(f"attention back end '{name}' is none of {', '.join(BACKENDS)}")
    if kernel not in ("auto", *KERNELS):
        raise ConfigurationError(
            f"attention kernel '{kernel}' is none of auto, {', '.join(KERNELS)}"
        )
    if not cache_dtype.is_floating_point:
        raise BackendUnavailableError(
            f"a key/value cache cannot be of {cache_dtype}; use a float dtype"
        )
    if name == "sdpa":
        return "as chosen"
    obstacles = flashinfer_obstacles(device, dtype, head_dim)
    if cache_dtype not in (dtype, torch.float8_e4m3fn):
        obstacles.append(f"FlashInfer caches {dtype} or float8_e4m3fn here, not {cache_dtype}")
    if not obstacles and kernel != "auto" and kernel not in usable_kernels(cache_dtype, device):
        obstacles.append(
            f"the kernel {kernel} does not run here "
            f"(of {', '.join(usable_kernels(cache_dtype, device))}): FA3 needs a Hopper GPU "
            "(compute capability 9), and an eight-bit cache paged_fa2"
        )
    if name == "flashinfer" and obstacles:
        raise BackendUnavailableError(
            f"{'; '.join(obstacles)}; choose the gather-and-SDPA path (use_sdpa=True, "
            "backend='sdpa' or attention_backend: sdpa)"
        )
    # without a GPU nothing else would help
    return "; ".join(obstacles if device.type == "cuda" else obstacles[:1])


def usable_kernels(cache_dtype: torch.dtype, device: torch.device) -> tuple[str, ...]:
    """FlashInfer's kernels for this cache on this GPU."""
    if cache_dtype.itemsize == 1:
        return ("paged_fa2",)
    hopper = torch.cuda.get_device_capability(device)[0] == 9
    return tuple(kernel for kernel in KERNELS if hopper or not kernel.endswith("fa3"))


def build_backend(
    name: str,
    *,
    layout: PageLayout,
    num_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    cache_dtype: torch.dtype,
    device: torch.device,
    kernel: str = "auto",
) -> AttentionBackend:
    """Build the back end ``name`` (``auto``, ``flashinfer`` or ``sdpa``), logging the reason.

    ``kernel``: of FlashInfer; ``auto`` measures which is the fastest here, and of one by name in
    how many parts. Raises what
    ``check_backend`` raises, and ``BackendUnavailableError`` when FlashInfer was asked for and none
    of its kernels runs.
    """
    reason = check_backend(
        name,
        head_dim=head_dim,
        dtype=dtype,
        cache_dtype=cache_dtype,
        device=device,
        kernel=kernel,
    )
    if reason:
        logger.info("attention back end: sdpa (%s)", reason)
        return GatherSdpaBackend(device)
    from lingbot_map_ros.layers.attention_tuning import fastest
    from lingbot_map_ros.layers.flashinfer_backend import FlashInferBackend, Problem

    problem = Problem(layout, num_heads, head_dim, dtype, cache_dtype, device)
    candidates = usable_kernels(cache_dtype, device) if kernel == "auto" else (kernel,)
    try:
        chosen = fastest(problem, candidates)
    except BackendUnavailableError as error:
        if name == "flashinfer":
            raise BackendUnavailableError(f"{error}; choose attention_backend: sdpa") from error
        logger.warning("attention back end: sdpa, which is slower (%s)", error)
        return GatherSdpaBackend(device)
    logger.info("attention back end: flashinfer %s on %s, %s", chosen, device, cache_dtype)
    return FlashInferBackend(problem, chosen)
