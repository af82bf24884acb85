# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Alternating frame and global attention: parameters, tokens and the walk through the blocks."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lingbot_map_ros.errors import ConfigurationError, InputError
from lingbot_map_ros.integers import require_integers
from lingbot_map_ros.layers.attention import Attend
from lingbot_map_ros.layers.block import Block
from lingbot_map_ros.layers.patch_embed import PatchEmbed
from lingbot_map_ros.layers.rope import (
    RotaryTable,
    grid_positions,
    rope_2d,
    rope_3d,
    spacetime_positions,
    split_3d,
)
from lingbot_map_ros.layers.vision_transformer import VisionTransformer

IMAGE_MEAN = (0.485, 0.456, 0.406)
IMAGE_STD = (0.229, 0.224, 0.225)
NUM_REGISTERS = 4


@dataclass(frozen=True)
class ViTConfig:
    """Sizes of the vision transformer that embeds the patches; its width is the aggregator's."""

    depth: int = 24
    num_heads: int = 16
    num_register_tokens: int = 4
    img_size: int = 518

    def __post_init__(self) -> None:
        require_integers(self)


def last_of_each_quarter(depth: int) -> tuple[int, ...]:
    """Indices of the blocks whose outputs the heads read when a configuration names none."""
    if depth < 4:
        raise ConfigurationError(f"depth={depth} has no four quarters; use at least 4 blocks")
    return tuple(depth * quarter // 4 - 1 for quarter in (1, 2, 3, 4))


def require_tensor(images: object) -> None:
    """Raise ``InputError`` for anything but a tensor."""
    if not isinstance(images, Tensor):
        raise InputError(
            f"images must be a torch.Tensor, not {type(images).__name__}; torch.from_numpy makes "
            "one of an array, and StreamingSession.step takes a camera's images as arrays"
        )


class AggregatorBase(nn.Module):
    """Patch embedding, special tokens and ``depth`` pairs of frame and global blocks.

    Each frame's tokens are ``[camera, registers, scale, patches in row-major order]``.
    """

    image_mean: Tensor
    image_std: Tensor

    def __init__(
        self,
        *,
        depth: int,
        num_heads: int,
        head_dim: int = 64,
        mlp_ratio: float = 4.0,
        patch_size: int = 14,
        vit: ViTConfig | None = None,
        selected_layers: tuple[int, ...] | None = None,
        enable_3d_rope: bool = True,
        disable_global_rope: bool = False,
    ) -> None:
        super().__init__()
        dim = num_heads * head_dim
        self.embed_dim = dim
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.num_special = NUM_REGISTERS + 2
        self.selected_layers = selected_layers or last_of_each_quarter(depth)
        if not all(0 <= layer < depth for layer in self.selected_layers):
            raise ConfigurationError(f"selected_layers {selected_layers} exceed depth {depth}")
        self.enable_3d_rope = enable_3d_rope
        self.disable_global_rope = disable_global_rope
        self.patch_embed: PatchEmbed | VisionTransformer = (
            PatchEmbed(dim, patch_size)
            if vit is None
            else VisionTransformer(
                dim,
                vit.depth,
                vit.num_heads,
                img_size=vit.img_size,
                patch_size=patch_size,
                num_register_tokens=vit.num_register_tokens,
                mlp_ratio=mlp_ratio,
            )
        )
        self.camera_token = nn.Parameter(torch.empty(1, 2, 1, dim))
        self.register_token = nn.Parameter(torch.empty(1, 2, NUM_REGISTERS, dim))
        for token in (self.camera_token, self.register_token):
            # On the meta device a normal draw would import the compiler of PyTorch, for seconds.
            nn.init.uniform_(token, -1e-6, 1e-6)
        self.scale_token = nn.Parameter(torch.ones(1, 2, 1, dim))
        self.frame_blocks = self._blocks(depth, mlp_ratio)
        self.global_blocks = self._blocks(depth, mlp_ratio)
        self.register_buffer("image_mean", torch.empty(0), persistent=False)
        self.register_buffer("image_std", torch.empty(0), persistent=False)
        self.set_image_statistics(torch.device("cpu"))

    def set_image_statistics(self, device: torch.device) -> None:
        """Set the normalisation constants, which no checkpoint carries, in float32."""
        self.image_mean = torch.tensor(IMAGE_MEAN, device=device).view(3, 1, 1)
        self.image_std = torch.tensor(IMAGE_STD, device=device).view(3, 1, 1)

    def _blocks(self, depth: int, mlp_ratio: float) -> nn.ModuleList:
        return nn.ModuleList(
            Block(self.embed_dim, self.num_heads, mlp_ratio=mlp_ratio, qk_norm=True)
            for _ in range(depth)
        )

    def special_tokens(self, start: int, frames: int, num_scale_frames: int) -> Tensor:
        """Special tokens ``[frames, 6, dim]`` for frames ``start ...`` of the kept ones.

        The first frame of a stream has its own camera and register tokens, the scale frames their
        own scale token.
        """
        kinds = [(int(i > 0), int(i >= num_scale_frames)) for i in range(start, start + frames)]
        tokens = {
            (later, streamed): torch.cat(
                (
                    self.camera_token[0, later],
                    self.register_token[0, later],
                    self.scale_token[0, streamed],
                )
            )
            for later, streamed in set(kinds)
        }
        return torch.stack([tokens[kind] for kind in kinds])

    @staticmethod
    def check_images(images: Tensor) -> None:
        """Raise ``InputError`` for anything but floating-point ``[N, 3, H, W]``."""
        require_tensor(images)
        if images.ndim != 4 or images.shape[1] != 3 or not images.is_floating_point():
            raise InputError(
                "images must be a floating-point tensor [frames, 3, H, W] with values in [0, 1], "
                f"got {images.dtype} {list(images.shape)}"
            )

    def embed_patches(self, images: Tensor) -> Tensor:
        """Map images ``[N, 3, H, W]`` in [0, 1] to patch tokens ``[N, patches, dim]``."""
        self.check_images(images)
        return self.patch_embed((images - self.image_mean) / self.image_std)

    def frame_rope(self, grid: tuple[int, int], device: torch.device) -> RotaryTable:
        """Rotary table of the frame blocks."""
        return rope_2d(grid_positions(grid, self.num_special, device), self.head_dim)

    def global_rope(
        self, grid: tuple[int, int], times: Tensor, device: torch.device
    ) -> RotaryTable | None:
        """Rotary table of the global blocks for frames at times ``times [frames]``."""
        if self.disable_global_rope:
            return None
        if self.enable_3d_rope:
            positions = spacetime_positions(grid, self.num_special, times, device)
            return rope_3d(positions, split_3d(self.head_dim))
        positions = grid_positions(grid, self.num_special, device).repeat(len(times), 1)
        return rope_2d(positions, self.head_dim)

    def run_blocks(
        self,
        tokens: Tensor,
        frame_rope: RotaryTable,
        global_rope: RotaryTable | None,
        attend: Callable[[int], Attend],
    ) -> list[Tensor]:
        """Walk ``tokens [B, S, P, dim]`` through the blocks.

        ``attend(i)`` is what global block ``i`` attends with. Returns the selected outputs, each
        ``[B, S, P, 2 * dim]``: frame and global half.
        """
        batch, frames = tokens.shape[:2]
        outputs = []
        x = tokens.flatten(0, 1)
        for i, (frame_block, global_block) in enumerate(
            zip(self.frame_blocks, self.global_blocks, strict=True)
        ):
            local = frame_block(x, frame_rope)
            sequence = local.unflatten(0, (batch, frames)).flatten(1, 2)
            x = global_block(sequence, global_rope, attend(i))
            x = x.unflatten(1, (frames, -1)).flatten(0, 1)
            if i in self.selected_layers:
                both = torch.cat((local, x), dim=-1)
                outputs.append(both.unflatten(0, (batch, frames)))
        return outputs
