# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Key/value cache of the camera head: one token a frame, every kept frame visible."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lingbot_map_ros.errors import CacheError, CacheFullError, RollbackError
from lingbot_map_ros.layers.attention import Attend


class CameraCache:
    """Fixed-capacity buffers ``[iterations, blocks, 2, heads, capacity, head_dim]`` in float32.

    Rows past ``length`` are never visible, so a call that fails before ``advance`` leaves no trace.
    All rows are read under a mask whose buffer is fixed: a CUDA graph that recorded a call for one
    frame serves the next frames too.
    """

    def __init__(
        self,
        iterations: int,
        blocks: int,
        num_heads: int,
        head_dim: int,
        capacity: int,
        device: torch.device,
    ) -> None:
        self.buffer = torch.zeros(
            (iterations, blocks, 2, num_heads, capacity, head_dim), device=device
        )
        self.capacity = capacity
        self.length = 0
        self.frame_index = 0
        self._written = 0
        self._row = torch.arange(capacity, device=device)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        self._positions = self._position
        self._visible = torch.zeros((1, capacity), dtype=torch.bool, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return self.buffer.numel() * self.buffer.element_size()

    def begin(self, frames: int) -> None:
        """Make the next ``frames`` rows the ones that a call writes, and the last that it sees.

        Raises ``CacheFullError`` when there are not so many.
        """
        end = self.length + frames
        if end > self.capacity:
            raise CacheFullError(
                f"the camera cache holds {self.length} of {self.capacity} frames; reset the "
                "stream, open a new window, or keep fewer keyframes"
            )
        if self._written > end:
            # Hidden rows take part with weight 0, which a NaN of an undone frame would survive.
            self.buffer[..., end : self._written, :].zero_()
        self._written = end
        self._positions = self._position.fill_(self.length)
        if frames > 1:
            self._positions = self._row[self.length : end]
        torch.lt(self._row[None], end, out=self._visible)

    def attend(self, iteration: int, block: int) -> Attend:
        """Attention of a begun call's frames over all kept frames and themselves."""
        keys, values = self.buffer[iteration, block]

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys.index_copy_(1, self._positions, k[0])
            values.index_copy_(1, self._positions, v[0])
            return F.scaled_dot_product_attention(
                q, keys[None], values[None], attn_mask=self._visible
            )

        return attend

    def advance(self, frames: int, *, keep: bool) -> None:
        """Finish a call: its frames stay visible if ``keep``; the frame index moves on anyway."""
        self.frame_index += frames
        if keep:
            self.length += frames

    def rollback(self) -> None:
        """Drop the newest kept frame; ``RollbackError`` on an empty cache."""
        if not self.length:
            raise RollbackError("the camera cache is empty: nothing to roll back")
        self.length -= 1
        self.frame_index -= 1

    def snapshot(self) -> tuple[int, int]:
        """Counters that ``restore`` brings back."""
        return self.length, self.frame_index

    def restore(self, state: tuple[int, int]) -> None:
        """Return to a snapshot taken at this length or at a shorter one."""
        if state[0] > self.length:
            raise CacheError("a snapshot of the camera cache lies in the future")
        self.length, self.frame_index = state

    def reset(self) -> None:
        """Forget all frames."""
        self.length = self.frame_index = 0
