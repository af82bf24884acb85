# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The tensor that holds the pages of all blocks, and what is written into it."""

import torch
from torch import Tensor

from lingbot_map_ros.layers.page_packing import PageMove
from lingbot_map_ros.layers.page_table import PageLayout, PageTable

_FLOAT8_MAX = 448.0


class PagePool:
    """Keys and values ``data [blocks, 2, pages, page_size, heads, head_dim]``, allocated once.

    K and V lie apart so that the visible rows of a block can be read as one dense tensor.
    """

    def __init__(
        self,
        layout: PageLayout,
        num_blocks: int,
        num_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        # Zeros, because a kernel may load masked rows behind the last special token, and 0 * NaN
        # is NaN.
        self.data = torch.zeros(
            (num_blocks, 2, layout.num_pages, layout.page_size, num_heads, head_dim),
            dtype=dtype,
            device=device,
        )
        self._layout = layout
        # Fixed, because a captured graph reads it.
        self._rows = torch.zeros(layout.tokens_per_frame, dtype=torch.int64, device=device)
        self._rows_of: PageTable | None = None
        self._special_end = [0] * num_blocks

    def prepare(self, table: PageTable, blocks: slice) -> None:
        """Direct the next writes to the newest frame of ``table``.

        Special tokens behind it, of frames that were undone, are cleared.
        """
        if self._rows_of is not table:
            self._rows.copy_(torch.from_numpy(table.frame_rows()), non_blocking=True)
            self._rows_of = table
        end = max(self._special_end[blocks])
        if end > table.special_count:
            first = self._layout.patch_pages * self._layout.page_size
            rows = self.data[blocks].flatten(2, 3)
            _bits(rows[:, :, first + table.special_count : first + end]).zero_()
        count = len(self._special_end[blocks])
        self._special_end[blocks] = [table.special_count] * count

    def write(self, block: int, k: Tensor, v: Tensor) -> None:
        """Store ``k`` and ``v``, each ``[tokens_per_frame, heads, head_dim]``, as prepared."""
        rows = _bits(self.data[block].flatten(1, 2))
        rows[0].index_copy_(0, self._rows, _bits(self._converted(k)))
        rows[1].index_copy_(0, self._rows, _bits(self._converted(v)))

    def move(self, moves: tuple[PageMove, ...]) -> None:
        """Copy pages of all blocks, in this order."""
        for source, target in moves:
            self.data[:, :, target] = self.data[:, :, source]

    def move_back(self, moves: tuple[PageMove, ...]) -> None:
        """Undo ``move``."""
        self.move(tuple(PageMove(target, source) for source, target in reversed(moves)))

    def _converted(self, tensor: Tensor) -> Tensor:
        if self.data.dtype.itemsize == 1:
            # Beyond its range the cast would give NaN.
            tensor = tensor.clamp(-_FLOAT8_MAX, _FLOAT8_MAX)
        return tensor.to(self.data.device, self.data.dtype)


def _bits(tensor: Tensor) -> Tensor:
    """View that indexed copies can handle: PyTorch has none for 8-bit floats."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor
