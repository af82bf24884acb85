# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Convolutional patch embedding."""

from torch import Tensor, nn

from lingbot_map_ros.errors import InputError


class PatchEmbed(nn.Module):
    """Non-overlapping patches by one convolution, in row-major order, without positions or norm."""

    def __init__(self, dim: int, patch_size: int = 14) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.proj = nn.Conv2d(3, dim, kernel_size=patch_size, stride=patch_size)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Patch rows and columns of an image; ``InputError`` for partial patches."""
        size = self.patch_size
        if height < size or width < size or height % size or width % size:
            raise InputError(
                f"image size {width}x{height} is not a positive multiple of the patch size {size}; "
                f"resize it, for example to {max(width // size, 1) * size}x"
                f"{max(height // size, 1) * size}"
            )
        return height // size, width // size

    def forward(self, images: Tensor) -> Tensor:
        """Map normalised images ``[N, 3, H, W]`` to tokens ``[N, H/patch * W/patch, dim]``."""
        self.grid(*images.shape[-2:])
        return self.proj(images.to(self.proj.weight.dtype)).flatten(2).transpose(1, 2)
