# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's prefill kernels over the page table or over the pool as one dense tensor.

All index buffers are fixed and every plan writes into them, so that a CUDA graph which recorded
``run`` serves later plans too.
"""

import importlib.util
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lingbot_map_ros.layers.page_table import PageLayout, PageTable

WORKSPACE_BYTES = 128 * 1024 * 1024
_LN2 = math.log(2)


@dataclass(frozen=True)
class Problem:
    """What the kernels work on; ``dtype`` is that of the queries."""

    layout: PageLayout
    num_heads: int
    head_dim: int
    dtype: torch.dtype
    cache_dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class Kernel:
    """A kernel by name (see ``KERNELS``).

    With ``splits`` above 1 the keys of the dense kernel are cut into as many parts, attended to
    side by side and merged: a frame's queries alone do not fill a large GPU.
    """

    name: str
    splits: int = 1

    def __str__(self) -> str:
        return self.name if self.splits == 1 else f"{self.name} in {self.splits} parts"


class FlashInferBackend:
    """One kernel, planned once for all blocks."""

    capturable = True

    def __init__(self, problem: Problem, kernel: Kernel) -> None:
        self.kernel = kernel
        self._problem = problem
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=problem.device)
        self._uploaded = torch.cuda.Event()
        self._dense: _Dense | None = None
        if kernel.name.startswith("dense"):
            self._dense = _Dense(problem, kernel, self._workspace)
        self._paged: _Paged | None = None
        self._planned: _Dense | _Paged | None = None

    def plan(self, table: PageTable, num_queries: int) -> None:
        """Plan for ``table``. A table with holes gets the paged kernel of the same kind."""
        # The planner's host buffer must not change while the last upload may still read it.
        self._uploaded.synchronize()
        if self._dense is not None and table.run is not None:
            self._planned = self._dense
            self._dense.plan(table.run, num_queries)
        else:
            if self._paged is None:
                self._paged = _Paged(self._problem, self.kernel, self._workspace)
            self._planned = self._paged
            self._paged.plan(table, num_queries)
        self._uploaded.record(torch.cuda.current_stream(self._problem.device))

    def run(self, q: Tensor, kv: Tensor) -> Tensor:
        """Attend with the current plan."""
        if self._planned is None:
            raise RuntimeError("plan() comes before run()")
        return self._planned.run(q, kv)


def _arguments(problem: Problem) -> dict[str, Any]:
    return {
        "num_qo_heads": problem.num_heads,
        "num_kv_heads": problem.num_heads,
        "head_dim_qk": problem.head_dim,
        "q_data_type": problem.dtype,
        "kv_data_type": problem.cache_dtype,
        "causal": False,
        "pos_encoding_mode": "NONE",
    }


class _Wrappers:
    """FlashInfer's wrappers by the number of queries that their fixed buffers serve.

    That of a frame stays, because recorded graphs read its buffers; of the others the newest does.
    ``sizes``: of the index buffers that each has, by the names of its arguments.
    """

    def __init__(
        self,
        kind: Callable[..., Any],
        problem: Problem,
        kernel: Kernel,
        workspace: Tensor,
        sizes: Mapping[str, int],
    ) -> None:
        self._frame = problem.layout.tokens_per_frame
        self._make = lambda: kind(
            workspace,
            kv_layout="NHD",
            use_cuda_graph=True,
            backend=kernel.name.removeprefix("paged_").removeprefix("dense_"),
            **{
                name: torch.zeros(size, dtype=torch.int32, device=problem.device)
                for name, size in sizes.items()
            },
        )
        self._made: dict[int, Any] = {}

    def __call__(self, num_queries: int) -> Any:
        if num_queries not in self._made:
            self._made = {n: made for n, made in self._made.items() if n == self._frame}
            self._made[num_queries] = self._make()
        return self._made[num_queries]


class _Paged:
    """Attention over the page table."""

    def __init__(self, problem: Problem, kernel: Kernel, workspace: Tensor) -> None:
        import flashinfer

        self._device = problem.device
        self._page_size = problem.layout.page_size
        self._arguments = _arguments(problem)
        sizes = {
            "qo_indptr_buf": 2,
            "paged_kv_indptr_buf": 2,
            "paged_kv_indices_buf": problem.layout.num_pages,
            "paged_kv_last_page_len_buf": 1,
        }
        kind = flashinfer.BatchPrefillWithPagedKVCacheWrapper
        self._wrappers = _Wrappers(kind, problem, kernel, workspace, sizes)
        self._wrapper: Any = None

    def plan(self, table: PageTable, num_queries: int) -> None:
        self._wrapper = self._wrappers(num_queries)
        pages = torch.tensor(table.visible, dtype=torch.int32)
        self._wrapper.plan(
            torch.tensor([0, num_queries], dtype=torch.int32),
            torch.tensor([0, len(pages)], dtype=torch.int32),
            pages.to(self._device, non_blocking=True),
            torch.tensor([table.last_page_len], dtype=torch.int32),
            page_size=self._page_size,
            **self._arguments,
        )

    def run(self, q: Tensor, kv: Tensor) -> Tensor:
        # FA2 writes its output without gaps, whatever the strides of the queries are.
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        return self._wrapper.run(q, (kv[0], kv[1]), out=out)


class _Dense:
    """Attention over one run of rows, in parts that are merged by their log-sum-exp."""

    def __init__(self, problem: Problem, kernel: Kernel, workspace: Tensor) -> None:
        import flashinfer

        self._splits = kernel.splits
        self._arguments = _arguments(problem)
        sizes = {"qo_indptr_buf": kernel.splits + 1, "kv_indptr_buf": kernel.splits + 1}
        kind = flashinfer.BatchPrefillWithRaggedKVCacheWrapper
        self._wrappers = _Wrappers(kind, problem, kernel, workspace, sizes)
        self._wrapper: Any = None

    def plan(self, run: tuple[int, int], num_queries: int) -> None:
        self._wrapper = self._wrappers(num_queries)
        parts = torch.arange(self._splits + 1, dtype=torch.int64)
        start, end = run
        self._wrapper.plan(
            (parts * num_queries).int(),
            (start + parts * (end - start) // self._splits).int(),
            **self._arguments,
        )

    def run(self, q: Tensor, kv: Tensor) -> Tensor:
        k, v = kv.flatten(1, 2)
        if self._splits == 1:
            return self._wrapper.run(q, k, v)
        out, weight = self._wrapper.run(q.repeat(self._splits, 1, 1), k, v, return_lse=True)
        shape = (self._splits, len(q))
        return _merge_parts(out.unflatten(0, shape), weight.unflatten(0, shape))


def merge_parts(out: Tensor, log2_weight: Tensor) -> Tensor:
    """Attention over all keys from that over disjoint parts of them.

    ``out [parts, n, heads, head_dim]`` and the base-2 logarithms ``[parts, n, heads]`` of the sums
    of their exponentials; returns ``[n, heads, head_dim]``.
    """
    share = torch.softmax(log2_weight * _LN2, dim=0)
    return (out * share[..., None]).sum(dim=0).to(out.dtype)


# Fused it moves a third of the bytes.
_merge_parts = (
    torch.compile(merge_parts, dynamic=False) if importlib.util.find_spec("triton") else merge_parts
)
