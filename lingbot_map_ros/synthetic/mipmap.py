# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A bank of square textures as one flat mipmap, sampled trilinearly with wrap-around.

A texel is one 32-bit word, red, green, blue and brightness, so a tap is one gather.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from ..errors import InputError
from .textures import SIZE

LEVELS = SIZE.bit_length() - 1  # down to 2x2


class TexturePyramid:
    """Mipmaps of textures, uint8 or float in [0,1], [N,256,256,3].

    Raises InputError for any other shape.
    """

    def __init__(self, bank: Tensor, device: torch.device) -> None:
        if bank.ndim != 4 or tuple(bank.shape[1:]) != (SIZE, SIZE, 3):
            raise InputError(f"textures must be [N,{SIZE},{SIZE},3], not {tuple(bank.shape)}")
        level = bank.to(device, torch.float32).permute(0, 3, 1, 2)
        if not bank.is_floating_point():
            level = level / 255.0
        level = torch.cat([level, level.mean(1, keepdim=True)], 1)
        words = []
        for _ in range(LEVELS):
            r, g, b, y = (level * 255.0).round().clamp(0, 255).to(torch.int32).unbind(1)
            words.append((r | g << 8 | b << 16 | y << 24).flatten())
            level = avg_pool2d(level, 2)
        self.words = torch.cat(words)
        self.count = len(bank)

    def colour(self, index: Tensor, u: Tensor, v: Tensor, level: Tensor) -> list[Tensor]:
        """Red, green and blue in [0,255] at (u, v) in tiles, from mip level (0 is the finest)."""
        return self._trilinear(index, u, v, level, (0, 8, 16))

    def brightness(self, index: Tensor, u: Tensor, v: Tensor, level: Tensor) -> Tensor:
        """Brightness in [0,255]; arguments as of ``colour``."""
        return self._trilinear(index, u, v, level, (24,))[0]

    def _trilinear(
        self, index: Tensor, u: Tensor, v: Tensor, level: Tensor, shifts: tuple[int, ...]
    ) -> list[Tensor]:
        level = level.clamp(0.0, LEVELS - 1.001)
        fine = level.floor()
        blend = level - fine
        fine = fine.to(torch.int32)
        first = self._bilinear(index, u, v, fine, shifts)
        second = self._bilinear(index, u, v, fine + 1, shifts)
        return [a + blend * (b - a) for a, b in zip(first, second)]

    def _bilinear(
        self, index: Tensor, u: Tensor, v: Tensor, level: Tensor, shifts: tuple[int, ...]
    ) -> list[Tensor]:
        size = torch.bitwise_right_shift(torch.full_like(level, SIZE), level)
        # Texels of all finer levels: a geometric series in size squared.
        start = (4 * SIZE * SIZE - 4 * size * size) // 3 * self.count + index * size * size
        x, y = (c * size - 0.5 for c in (u, v))
        x0, y0 = x.floor(), y.floor()
        fx, fy = x - x0, y - y0
        mask = size - 1
        left, top = x0.to(torch.int32) & mask, y0.to(torch.int32) & mask
        right = (left + 1) & mask
        row, below = start + top * size, start + ((top + 1) & mask) * size
        taps = [self._tap(i) for i in (row + left, row + right, below + left, below + right)]
        weights = ((1 - fx) * (1 - fy), fx * (1 - fy), (1 - fx) * fy, fx * fy)
        return [
            sum(w * (t >> shift & 255) for w, t in zip(weights, taps))  # type: ignore[misc]
            for shift in shifts
        ]

    def _tap(self, index: Tensor) -> Tensor:
        return self.words.index_select(0, index.reshape(-1)).view_as(index)
