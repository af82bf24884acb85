# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Ways to attend to a full cache, each as a call over the same queries, keys and values.

The library's back ends as they are, and beside them what PyTorch offers over the same rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from lingbot_map_ros.layers.attention_backends import (
    AttentionBackend,
    GatherSdpaBackend,
    usable_kernels,
)
from lingbot_map_ros.layers.flashinfer_backend import FlashInferBackend, Kernel, Problem
from lingbot_map_ros.layers.flashinfer_cache import FlashInferKVCacheManager
from lingbot_map_ros.layers.page_table import PageTable

HEAD_DIM, SPECIAL = 64, 6
FA3_PARTS = (4, 11)
"""Parts in which a frame's queries fill the 132 processors of a Hopper GPU well."""
Attend = Callable[[], Tensor]


@dataclass(frozen=True)
class FullCache:
    """A block's cache behind many frames, and the queries of the newest."""

    q: Tensor
    """``[n, heads, head_dim]``, of a wider spread than the keys, so that some keys matter more."""
    kv: Tensor
    """``[2, pages, page_size, heads, head_dim]``."""
    table: PageTable

    @classmethod
    def filled(
        cls,
        *,
        patches: int,
        scale_frames: int,
        window: int,
        frames: int,
        heads: int,
        device: torch.device,
    ) -> "FullCache":
        """Show ``frames`` frames of normal keys and values to a cache of one block."""
        tokens = patches + SPECIAL
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        cache = FlashInferKVCacheManager(
            num_blocks=1,
            max_num_frames=frames,
            tokens_per_frame=tokens,
            num_heads=heads,
            head_dim=HEAD_DIM,
            dtype=dtype,
            device=device,
            num_special_tokens=SPECIAL,
            scale_frames=scale_frames,
            sliding_window=window,
            max_total_frames=frames,
            backend="sdpa",
            pending_frames=1,
        )
        generator = torch.Generator(device).manual_seed(5)
        shape = (2, tokens, heads, HEAD_DIM)
        for _ in range(frames):
            k, v = torch.randn(shape, generator=generator, device=device).to(dtype)
            cache.begin_frame()
            cache.write(0, k, v)
        q = 2 * torch.randn(shape[1:], generator=generator, device=device)
        return cls(q.to(dtype), cache.pool[0], cache.page_table())

    @property
    def rows(self) -> Tensor:
        """Numbers of the visible rows of the flattened pool."""
        return torch.from_numpy(self.table.visible_rows()).to(self.q.device)

    @property
    def flops(self) -> float:
        """Operations of the two matrix products."""
        return 4.0 * self.q.numel() * len(self.rows)

    def exact(self) -> Tensor:
        """Float32 attention, head by head: the scores of all heads at once would be 4.5 GB."""
        keys, values = self.kv.flatten(1, 2).index_select(1, self.rows)
        out = torch.empty_like(self.q, dtype=torch.float32)
        for head in range(self.q.shape[1]):
            q, k, v = (x[:, head].float() for x in (self.q, keys, values))
            out[:, head] = (q @ k.T * HEAD_DIM**-0.5).softmax(-1) @ v
        return out


def through_backend(backend: Callable[[], AttentionBackend], full: FullCache, kv: Tensor) -> Attend:
    """One of the library's back ends, planned."""
    planned = backend()
    planned.plan(full.table, len(full.q))
    return lambda: planned.run(full.q, kv)


def gathered(full: FullCache) -> Attend:
    """PyTorch's choice of kernel over copies of the visible rows."""
    rows, flat = full.rows, full.kv.flatten(1, 2)

    def attend() -> Tensor:
        k, v = flat.index_select(1, rows).transpose(1, 2)
        q = full.q.transpose(0, 1)
        return F.scaled_dot_product_attention(q[None], k[None], v[None])[0].transpose(0, 1)

    return attend


def in_place(full: FullCache, kernel: SDPBackend) -> Attend:
    """One of PyTorch's kernels over the visible rows where they lie."""
    if full.table.run is None:
        raise ValueError("the visible rows are no single run")
    k, v = full.kv.flatten(1, 2)[:, slice(*full.table.run)].transpose(1, 2)
    q = full.q.transpose(0, 1)

    def attend() -> Tensor:
        with sdpa_kernel(kernel):
            return F.scaled_dot_product_attention(q[None], k[None], v[None])[0].transpose(0, 1)

    return attend


def ways(full: FullCache) -> dict[str, Callable[[], Attend]]:
    """Every way that may work here, by name; making one may raise."""
    device, dtype = full.q.device, full.q.dtype
    sdpa = partial(GatherSdpaBackend, device)
    found: dict[str, Callable[[], Attend]] = {
        "SDPA in place": partial(through_backend, sdpa, full, full.kv),
        "SDPA, gathered": partial(gathered, full),
    }
    if device.type != "cuda":
        return found
    layout, heads = full.table.layout, full.q.shape[1]
    problem = Problem(layout, heads, HEAD_DIM, dtype, dtype, device)
    kernels = [Kernel(name) for name in usable_kernels(dtype, device)]
    if "dense_fa3" in usable_kernels(dtype, device):
        kernels += [Kernel("dense_fa3", parts) for parts in FA3_PARTS]
    for kernel in kernels:
        made = partial(FlashInferBackend, problem, kernel)
        found[str(kernel)] = partial(through_backend, made, full, full.kv)
    found["cuDNN of PyTorch, in place"] = partial(in_place, full, SDPBackend.CUDNN_ATTENTION)
    found["flash of PyTorch, in place"] = partial(in_place, full, SDPBackend.FLASH_ATTENTION)
    eight = replace(problem, cache_dtype=torch.float8_e4m3fn)
    made = partial(FlashInferBackend, eight, Kernel("paged_fa2"))
    small = full.kv.to(torch.float8_e4m3fn)
    found["paged_fa2, fp8 cache"] = partial(through_backend, made, full, small)
    return found
