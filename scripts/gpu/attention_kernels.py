# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Ways to attend to a paged cache, each as a call over the same keys and values.

All see the same rows: patch pages, then the packed special tokens, so that the pool read from its
start is one dense tensor too. Nothing here is used by the library; its own back ends are in
``layers/attention_backends``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

WORKSPACE_BYTES = 128 * 1024 * 1024
Attend = Callable[[], Tensor]


@dataclass(frozen=True)
class Problem:
    """Queries ``[n, heads, dim]`` and a pool ``[2, pages, page_size, heads, dim]``.

    The first ``rows`` rows of the flattened pool are visible.
    """

    q: Tensor
    pool: Tensor
    rows: int

    @classmethod
    def random(
        cls, queries: int, pages: int, page_size: int, special: int, heads: int, where: torch.device
    ) -> "Problem":
        """Normal keys and values, and queries that look at some keys more than at others."""
        generator = torch.Generator(where).manual_seed(5)
        dtype = torch.bfloat16 if where.type == "cuda" else torch.float32
        all_pages = pages - (-special // page_size)
        shape = (2, all_pages, page_size, heads, 64)
        pool = torch.zeros(shape, dtype=dtype, device=where)
        rows = pages * page_size + special
        for half in pool.flatten(1, 2):
            half[:rows].normal_(generator=generator)
        q = torch.empty((queries, heads, 64), dtype=dtype, device=where)
        return cls(q.normal_(std=2.0, generator=generator), pool, rows)

    @property
    def flops(self) -> float:
        """Operations of the two matrix products."""
        n, heads, dim = self.q.shape
        return 4.0 * n * self.rows * heads * dim

    @property
    def dense(self) -> tuple[Tensor, Tensor]:
        """Keys and values ``[rows, heads, dim]``: views."""
        keys, values = self.pool.flatten(1, 2)
        return keys[: self.rows], values[: self.rows]

    def exact(self) -> Tensor:
        """Float32 attention, head by head: the scores of all heads at once would be 4.5 GB."""
        keys, values = self.dense
        out = torch.empty_like(self.q, dtype=torch.float32)
        for head in range(self.q.shape[1]):
            q, k, v = (x[:, head].float() for x in (self.q, keys, values))
            out[:, head] = (q @ k.T * q.shape[-1] ** -0.5).softmax(-1) @ v
        return out


def gather_sdpa(problem: Problem) -> Attend:
    """Gathered copies of the visible rows, and PyTorch's choice of kernel."""
    index = torch.arange(problem.rows, device=problem.q.device)
    flat = problem.pool.flatten(1, 2)

    def attend() -> Tensor:
        k, v = flat.index_select(1, index).transpose(1, 2)
        q = problem.q.transpose(0, 1)
        return F.scaled_dot_product_attention(q[None], k[None], v[None])[0].transpose(0, 1)

    return attend


def dense_sdpa(problem: Problem, backend: SDPBackend) -> Attend:
    """One of PyTorch's kernels over the dense view."""
    q, k, v = (x.transpose(0, 1)[None] for x in (problem.q, *problem.dense))

    def attend() -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1)

    return attend


def paged(problem: Problem, kernel: str, cache_dtype: torch.dtype | None = None) -> Attend:
    """FlashInfer over pages, planned for CUDA graphs; ``cache_dtype`` for a smaller cache."""
    import flashinfer

    q, pool = problem.q, problem.pool if cache_dtype is None else problem.pool.to(cache_dtype)
    pages, size = pool.shape[1:3]
    host = {
        "qo_indptr": torch.tensor([0, len(q)], dtype=torch.int32),
        "paged_kv_indptr": torch.tensor([0, pages], dtype=torch.int32),
        "paged_kv_indices": torch.arange(pages, dtype=torch.int32),
        "paged_kv_last_page_len": torch.tensor(
            [problem.rows - (pages - 1) * size], dtype=torch.int32
        ),
    }
    wrapper: Any = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
        torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=q.device),
        kv_layout="NHD",
        use_cuda_graph=True,
        backend=kernel,
        **{f"{name}_buf": value.to(q.device) for name, value in host.items()},
    )
    wrapper.plan(*host.values(), page_size=size, **_planned(q, pool))
    return lambda: wrapper.run(q, (pool[0], pool[1]))


def ragged(problem: Problem, kernel: str) -> Attend:
    """FlashInfer over the dense view, planned for CUDA graphs."""
    import flashinfer

    q, (k, v) = problem.q, problem.dense
    ends = {
        "qo_indptr": torch.tensor([0, len(q)], dtype=torch.int32),
        "kv_indptr": torch.tensor([0, problem.rows], dtype=torch.int32),
    }
    wrapper: Any = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(
        torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=q.device),
        kv_layout="NHD",
        use_cuda_graph=True,
        backend=kernel,
        **{f"{name}_buf": value.to(q.device) for name, value in ends.items()},
    )
    wrapper.plan(*ends.values(), **_planned(q, k))
    return lambda: wrapper.run(q, k, v)


def _planned(q: Tensor, cached: Tensor) -> dict[str, Any]:
    return {
        "num_qo_heads": q.shape[1],
        "num_kv_heads": q.shape[1],
        "head_dim_qk": q.shape[2],
        "causal": False,
        "q_data_type": q.dtype,
        "kv_data_type": cached.dtype,
    }


def kernels(problem: Problem) -> dict[str, Callable[[], Attend]]:
    """Every way that may work here, by name; making one may raise."""
    found: dict[str, Callable[[], Attend]] = {"gather SDPA": partial(gather_sdpa, problem)}
    if problem.q.device.type != "cuda":
        return found
    found = {"paged FA2": partial(paged, problem, "fa2"), **found}
    found["dense ragged FA2"] = partial(ragged, problem, "fa2")
    if torch.cuda.get_device_capability()[0] == 9:
        found["paged FA3"] = partial(paged, problem, "fa3")
        found["dense ragged FA3"] = partial(ragged, problem, "fa3")
    for name, backend in (
        ("dense cuDNN (PyTorch)", SDPBackend.CUDNN_ATTENTION),
        ("dense flash (PyTorch)", SDPBackend.FLASH_ATTENTION),
    ):
        found[name] = partial(dense_sdpa, problem, backend)
    found["paged FA2, fp8 cache"] = partial(paged, problem, "fa2", torch.float8_e4m3fn)
    return found
