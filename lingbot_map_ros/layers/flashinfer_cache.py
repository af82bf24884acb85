# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The paged key/value cache by its published calls, block by block.

Keys are stored after q/k norm and rotation. A frame is appended to a block, attended to, and then
either stays (eviction of the oldest window page) or is rolled back; page policy lives in
``page_table``, kernels in ``attention_backends``. A stream enters its frames into all blocks at
once (``PagedCache.begin_frame``).
"""

import torch
from torch import Tensor

from lingbot_map_ros.errors import CacheError, ConfigurationError
from lingbot_map_ros.layers.attention_backends import build_backend
from lingbot_map_ros.layers.page_table import PageLayout, PageTable
from lingbot_map_ros.layers.paged_cache import PagedCache


class FlashInferKVCacheManager(PagedCache):
    """Key/value cache of ``num_blocks`` attention blocks in two fixed page pools.

    Parameters
    ----------
    num_blocks, num_heads, head_dim
        Shape of the attention blocks.
    max_num_frames
        Part of the published signature; the pools do not depend on it.
    tokens_per_frame
        Tokens of one frame, ``num_special_tokens`` special ones first, then the patches.
    dtype, device
        Of the pool. ``float32`` needs the SDPA back end.
    scale_frames, sliding_window
        Frames that are never evicted, and frames that stay behind the newest.
    max_total_frames
        Frames a stream may keep, pending ones included: their special tokens stay visible.
    force_fp32
        Keep the pool in float32 and attend by gather-and-SDPA.
    fa3
        Use FlashInfer's Hopper kernel instead of FA2.
    backend
        ``auto``, ``flashinfer`` or ``sdpa``.
    pending_frames
        Frames that may stand beyond the window while their eviction is deferred.
    kernel
        Of FlashInfer (see ``KERNELS``), or ``auto`` to measure; as ``fa3`` says by default.
    query_dtype
        Of the queries; ``dtype`` by default. Another one only with an eight-bit pool.

    Raises
    ------
    ConfigurationError
        For sizes that cannot work; ``BackendUnavailableError`` if FlashInfer was chosen and cannot
        run here.

    Notes
    -----
    Every method that raises leaves the cache as it was.
    """

    def __init__(
        self,
        num_blocks: int,
        max_num_frames: int,
        tokens_per_frame: int,
        num_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
        num_special_tokens: int = 6,
        scale_frames: int = 8,
        sliding_window: int = 64,
        max_total_frames: int = 2048,
        force_fp32: bool = False,
        fa3: bool = False,
        *,
        backend: str = "auto",
        pending_frames: int = 16,
        kernel: str = "",
        query_dtype: torch.dtype | None = None,
    ) -> None:
        layout = PageLayout(
            tokens_per_frame=tokens_per_frame,
            num_special=num_special_tokens,
            scale_frames=scale_frames,
            window=sliding_window,
            max_frames=max_total_frames,
            pending_frames=pending_frames,
        )
        if force_fp32 and (fa3 or backend == "flashinfer"):
            raise ConfigurationError("force_fp32 runs on the SDPA path; drop fa3 or the back end")
        dtype = torch.float32 if force_fp32 else dtype
        # Eight bits hold keys and values; queries stay as exact as they come.
        query_dtype = query_dtype or (dtype if dtype.itemsize > 1 else torch.float32)
        attention = build_backend(
            "sdpa" if force_fp32 else "flashinfer" if fa3 and backend == "auto" else backend,
            layout=layout,
            num_heads=num_heads,
            head_dim=head_dim,
            dtype=query_dtype,
            cache_dtype=dtype,
            device=torch.device(device),
            kernel=kernel or ("paged_fa3" if fa3 else "paged_fa2"),
        )
        super().__init__(
            layout,
            num_blocks,
            num_heads,
            head_dim,
            dtype=dtype,
            query_dtype=query_dtype,
            device=torch.device(device),
            backend=attention,
        )

    def kv_pages(self, block_idx: int) -> Tensor:
        """Pages of a block as ``[pages, 2, page_size, heads, head_dim]`` (K, then V), a view."""
        return self.pool[self._check_block(block_idx)].transpose(0, 1)

    def get_cache_stats(self, block_idx: int = 0) -> dict[str, int]:
        """Counts of frames, pages and special tokens of a block."""
        table = self.page_table(block_idx)
        return {
            "frame_count": table.num_frames,
            "scale_pages": len(table.scale),
            "live_pages": len(table.window),
            "free_pages": len(table.free),
            "special_tokens": table.special_count,
        }

    @torch.no_grad()
    def append_frame(self, block_idx: int, k: Tensor, v: Tensor) -> None:
        """Store a frame's ``k`` and ``v``, each ``[tokens_per_frame, heads, head_dim]``.

        Raises ``CacheError`` for another shape and ``CacheFullError`` when a pool has no room.
        """
        table = self.page_table(block_idx)
        expected = (self.layout.tokens_per_frame, self.num_heads, self.head_dim)
        for name, tensor in (("k", k), ("v", v)):
            if tuple(tensor.shape) != expected:
                raise CacheError(
                    f"{name} of a frame must be {list(expected)} (tokens, heads, head_dim), got "
                    f"{list(tensor.shape)}; another image size needs a new cache"
                )
        grown = self._advance(table, "append", PageTable.append)
        self._pool.prepare(grown, slice(block_idx, block_idx + 1))
        self._pool.write(block_idx, k, v)
        self._tables[block_idx] = grown

    def evict_frames(
        self,
        block_idx: int,
        scale_frames: int | None = None,
        sliding_window: int | None = None,
        cross_frame_special: bool = True,
        include_scale_frames: bool = True,
        camera_only: bool = False,
        num_register_tokens: int = 4,
    ) -> None:
        """Free the pages of the oldest window frames; does nothing while eviction is deferred.

        The flags are the published ones. This cache keeps all special tokens of evicted frames and
        never evicts scale frames; other values raise ``ConfigurationError``.
        """
        table = self.page_table(block_idx)
        self._check_policy(scale_frames, sliding_window)
        if not cross_frame_special or not include_scale_frames or camera_only:
            raise ConfigurationError(
                "the paged cache keeps every special token and every scale frame; "
                "cross_frame_special=False, include_scale_frames=False and camera_only=True do not "
                "apply"
            )
        if not self._defer_eviction:
            self._tables[block_idx] = self._advance(
                table, ("evict", sliding_window), lambda t: t.evict(sliding_window)
            )

    def execute_deferred_eviction(
        self,
        block_idx: int,
        scale_frames: int | None = None,
        sliding_window: int | None = None,
        *,
        keep_pending: int = 0,
    ) -> None:
        """Commit a block's frames and run their held-back eviction, deferred or not.

        The newest ``keep_pending`` frames stay revocable.
        """
        table = self.page_table(block_idx)
        self._check_policy(scale_frames, sliding_window)
        self._tables[block_idx] = self._advance(
            table,
            ("commit", keep_pending, sliding_window),
            lambda t: t.commit(keep_pending, sliding_window),
        )

    def rollback_last_frame(self, block_idx: int) -> None:
        """Undo a block's newest append; ``RollbackError`` if nothing is revocable."""
        table = self.page_table(block_idx)
        self._tables[block_idx] = self._advance(table, "rollback", PageTable.rollback)

    @torch.no_grad()
    def compute_attention(self, block_idx: int, q: Tensor) -> Tensor:
        """Attend with ``q [n, heads, head_dim]`` to everything visible; same shape and dtype.

        Returns zeros while nothing is cached. Raises ``CacheError`` for another shape.
        """
        table = self.page_table(block_idx)
        if q.ndim != 3 or tuple(q.shape[1:]) != (self.num_heads, self.head_dim):
            raise CacheError(
                f"q must be [n, {self.num_heads}, {self.head_dim}], got {list(q.shape)}"
            )
        if not table.num_frames:
            return torch.zeros_like(q)
        self._plan(table, q.shape[0])
        return self.attend(block_idx, q.to(self.device)).to(q.device, q.dtype)

    def _check_policy(self, scale_frames: int | None, sliding_window: int | None) -> None:
        if scale_frames not in (None, self.layout.scale_frames):
            raise CacheError(
                f"scale_frames={scale_frames} differs from the cache's {self.layout.scale_frames}; "
                "build another cache"
            )
        if sliding_window is not None and not 1 <= sliding_window <= self.layout.window:
            raise CacheError(
                f"sliding_window={sliding_window} must lie between 1 and the cache's "
                f"{self.layout.window}"
            )
