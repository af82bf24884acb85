# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Pages, tables and plans of all attention blocks, and what brings an earlier state back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakSet

import torch
from torch import Tensor

from lingbot_map_ros.errors import CacheError
from lingbot_map_ros.layers.attention_backends import AttentionBackend
from lingbot_map_ros.layers.page_packing import PageMove, pack
from lingbot_map_ros.layers.page_pool import PagePool
from lingbot_map_ros.layers.page_table import PageLayout, PageTable


class CacheSnapshot:
    """Tables of all blocks and the deferral flag at one time, and the page moves made since."""

    def __init__(self, tables: list[PageTable], deferred: bool) -> None:
        self.tables, self.deferred = tables, deferred
        self.moves: tuple[PageMove, ...] = ()


class PagedCache:
    """Keys and values of ``num_blocks`` attention blocks, and what attends to them.

    Every method that raises leaves the cache as it was.
    """

    def __init__(
        self,
        layout: PageLayout,
        num_blocks: int,
        num_heads: int,
        head_dim: int,
        *,
        dtype: torch.dtype,
        query_dtype: torch.dtype,
        device: torch.device,
        backend: AttentionBackend,
    ) -> None:
        self.layout = layout
        self.num_blocks = num_blocks
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.dtype = dtype
        self.query_dtype = query_dtype
        self.device = device
        self.backend = backend
        self._pool = PagePool(layout, num_blocks, num_heads, head_dim, dtype, device)
        self._defer_eviction = False
        self._tables = [PageTable.empty(layout)] * num_blocks
        self._planned: tuple[PageTable, int] | None = None
        self._step: tuple[PageTable, object, PageTable] | None = None
        self._snapshots: WeakSet[CacheSnapshot] = WeakSet()

    @property
    def pool(self) -> Tensor:
        """All pages, ``[blocks, 2, pages, page_size, heads, head_dim]``."""
        return self._pool.data

    @property
    def num_frames(self) -> int:
        """Frames kept so far (evicted ones count), by block 0."""
        return self._tables[0].num_frames

    @property
    def nbytes(self) -> int:
        """Bytes of the pools."""
        return self.pool.nbytes

    def page_table(self, block_idx: int = 0) -> PageTable:
        """Page table of a block, an immutable value."""
        return self._tables[self._check_block(block_idx)]

    @torch.no_grad()
    def begin_frame(self) -> None:
        """Append the next frame to all blocks at once, evict unless deferred, and plan.

        For a frame's tokens as queries. Afterwards ``write`` and ``attend`` of each block work on
        the device alone. Raises ``CacheError`` for blocks that are out of step and
        ``CacheFullError`` when a pool has no room.
        """
        table = self._tables[0]
        if any(other is not table and other != table for other in self._tables):
            raise CacheError(
                "the blocks are out of step: bring every block to the same frames, or reset()"
            )
        packed, moves = pack(table, deferred=self._defer_eviction)
        grown = packed.append()
        if not self._defer_eviction:
            grown = grown.evict()
        for snapshot in self._snapshots:
            snapshot.moves += moves
        self._pool.move(moves)
        self._tables = [packed] * self.num_blocks
        self._pool.prepare(grown, slice(None))
        self._plan(grown, self.layout.tokens_per_frame)
        self._tables = [grown] * self.num_blocks

    def write(self, block_idx: int, k: Tensor, v: Tensor) -> None:
        """Store the begun frame's ``k`` and ``v``, each ``[tokens_per_frame, heads, head_dim]``."""
        self._pool.write(block_idx, k, v)

    def attend(self, block_idx: int, q: Tensor) -> Tensor:
        """Attend with ``q [n, heads, head_dim]`` as planned last; returns the same shape."""
        return self.backend.run(q.to(self.query_dtype), self.pool[block_idx])

    def reset(self) -> None:
        """Forget all frames and switch deferral off."""
        self._tables = [PageTable.empty(self.layout)] * self.num_blocks
        self._defer_eviction = False

    @contextmanager
    def transaction(self, *, deferred: bool = False, keep: bool = True) -> Iterator[None]:
        """Restore every block's frames if the body raises, or does not ``keep`` them.

        ``deferred``: eviction is held back in the body. Afterwards it is as it was, in any case.
        """
        state = self.snapshot()
        kept = False
        try:
            self._defer_eviction |= deferred
            yield
            kept = keep
        finally:
            self._defer_eviction = state.deferred
            if not kept:
                self.restore(state)

    def snapshot(self) -> CacheSnapshot:
        """State that ``restore`` brings back, as long as no evicted page was written since."""
        snapshot = CacheSnapshot(list(self._tables), self._defer_eviction)
        self._snapshots.add(snapshot)
        return snapshot

    @torch.no_grad()
    def restore(self, state: CacheSnapshot) -> None:
        """Return to a snapshot, page by page."""
        self._pool.move_back(state.moves)
        undone = len(state.moves)
        for other in self._snapshots:
            other.moves = other.moves[: max(len(other.moves) - undone, 0)]
        self._tables, self._defer_eviction = list(state.tables), state.deferred
        self._step = None

    def _advance(
        self, table: PageTable, operation: object, apply: Callable[[PageTable], PageTable]
    ) -> PageTable:
        """Apply an operation once and hand its result to every block in the same state."""
        if self._step is None or self._step[0] is not table or self._step[1] != operation:
            self._step = (table, operation, apply(table))
        return self._step[2]

    def _plan(self, table: PageTable, num_queries: int) -> None:
        if self._planned != (table, num_queries):
            self._planned = None
            self.backend.plan(table, num_queries)
            self._planned = (table, num_queries)

    def _check_block(self, block_idx: int) -> int:
        if not 0 <= block_idx < self.num_blocks:
            raise CacheError(
                f"block {block_idx} is not one of the cache's {self.num_blocks} blocks"
            )
        return block_idx
