# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Vision transformer with register tokens (the DINOv2 layout), as a patch embedding."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingbot_map_ros.layers.block import Block
from lingbot_map_ros.layers.patch_embed import PatchEmbed
from lingbot_map_ros.layers.precision import LayerNorm


class VisionTransformer(nn.Module):
    """ViT whose output is the normed patch tokens.

    ``img_size`` is the native size that fixes the positional table; any other size is served by
    interpolation of that table.
    """

    def __init__(
        self,
        dim: int,
        depth: int,
        num_heads: int,
        *,
        img_size: int = 518,
        patch_size: int = 14,
        num_register_tokens: int = 4,
        mlp_ratio: float = 4.0,
    ) -> None:
        super().__init__()
        self.patch_embed = PatchEmbed(dim, patch_size)
        side = img_size // patch_size
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + side * side, dim))
        self.register_tokens = nn.Parameter(torch.zeros(1, num_register_tokens, dim))
        # Released checkpoints carry it; inference never reads it.
        self.mask_token = nn.Parameter(torch.zeros(1, dim))
        self.blocks = nn.ModuleList(
            Block(dim, num_heads, mlp_ratio=mlp_ratio, eps=1e-6, layer_scale=1.0)
            for _ in range(depth)
        )
        self.norm = LayerNorm(dim, eps=1e-6)
        self._interpolated: tuple[object, Tensor] | None = None

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Patch rows and columns of an image; raises ``InputError`` for partial patches."""
        return self.patch_embed.grid(height, width)

    def positions(self, grid: tuple[int, int]) -> Tensor:
        """Positional embedding ``[1, 1 + rows*columns, dim]``, class token first, float32."""
        table = self.pos_embed
        if table.requires_grad and torch.is_grad_enabled():
            return self._interpolate(table.float(), grid)
        key = (grid, table.data_ptr(), table._version)
        if self._interpolated is None or self._interpolated[0] != key:
            self._interpolated = (key, self._interpolate(table.float(), grid))
        return self._interpolated[1]

    @staticmethod
    def _interpolate(table: Tensor, grid: tuple[int, int]) -> Tensor:
        side = math.isqrt(table.shape[1] - 1)
        if grid == (side, side):
            return table
        patches = table[:, 1:].unflatten(1, (side, side)).permute(0, 3, 1, 2)
        patches = F.interpolate(patches, size=grid, mode="bicubic", antialias=True)
        return torch.cat((table[:, :1], patches.flatten(2).transpose(1, 2)), dim=1)

    def prepare_tokens(self, images: Tensor) -> Tensor:
        """Class, register and patch tokens ``[N, 1 + registers + patches, dim]`` before block 0."""
        grid = self.grid(*images.shape[-2:])
        patches = self.patch_embed(images)
        count = images.shape[0]
        tokens = torch.cat((self.cls_token.expand(count, -1, -1), patches), dim=1)
        tokens = tokens + self.positions(grid)
        registers = self.register_tokens.expand(count, -1, -1)
        return torch.cat((tokens[:, :1], registers, tokens[:, 1:]), dim=1)

    def forward(self, images: Tensor) -> Tensor:
        """Map normalised images ``[N, 3, H, W]`` to normed patch tokens ``[N, patches, dim]``."""
        x = self.prepare_tokens(images)
        for block in self.blocks:
            x = block(x)
        return self.norm(x[:, 1 + self.register_tokens.shape[1] :])
