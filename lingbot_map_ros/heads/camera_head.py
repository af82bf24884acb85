# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Camera head: refines a pose encoding over a few iterations, in float32."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingbot_map_ros.errors import CacheError
from lingbot_map_ros.heads.camera_cache import CameraCache
from lingbot_map_ros.layers.attention import Attend
from lingbot_map_ros.layers.block import Block
from lingbot_map_ros.layers.mlp import Mlp
from lingbot_map_ros.layers.precision import LayerNorm, Linear
from lingbot_map_ros.layers.rope import RotaryTable, rope_3d, split_3d

POSE_DIM = 9


def activate_pose(raw: Tensor) -> Tensor:
    """Pose encoding ``[..., 9]`` from the raw one: fields of view cannot be negative."""
    return torch.cat((raw[..., :7], F.relu(raw[..., 7:])), dim=-1)


class CameraHead(nn.Module):
    """Pose encoding (translation, quaternion xyzw, fields of view) from the camera tokens.

    ``dim`` is the width of the aggregator's outputs. All kept frames of a stream stay visible.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        trunk_depth: int = 4,
        num_iterations: int = 4,
        mlp_ratio: float = 4.0,
        enable_3d_rope: bool = False,
        rope_theta: float = 10000.0,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.num_iterations = num_iterations
        self.enable_3d_rope = enable_3d_rope
        self.rope_theta = rope_theta
        self.trunk = nn.ModuleList(
            Block(dim, num_heads, mlp_ratio=mlp_ratio) for _ in range(trunk_depth)
        )
        self.token_norm = LayerNorm(dim)
        self.trunk_norm = LayerNorm(dim)
        self.empty_pose_tokens = nn.Parameter(torch.zeros(1, 1, POSE_DIM))
        self.embed_pose = Linear(POSE_DIM, dim)
        self.poseLN_modulation = nn.Sequential(nn.SiLU(), Linear(dim, 3 * dim))
        self.pose_branch = Mlp(dim, dim // 2, POSE_DIM)
        self.cache: CameraCache | None = None

    def allocate(self, capacity: int, device: torch.device) -> CameraCache:
        """Cache for ``capacity`` kept frames, taken once."""
        if self.cache is None or self.cache.capacity != capacity:
            self.cache = CameraCache(
                self.num_iterations,
                len(self.trunk),
                self.num_heads,
                self.head_dim,
                capacity,
                device,
            )
        return self.cache

    @torch.no_grad()
    def encode(self, tokens: Tensor, *, keep: bool = True) -> Tensor:
        """Encode the poses of a call's frames.

        Parameters
        ----------
        tokens
            Camera tokens ``[1, S, dim]`` of the aggregator's last output.
        keep
            Whether the frames stay visible to later calls.

        Returns
        -------
        Tensor
            ``[iterations, 1, S, 9]``; the last one is the result.

        Raises
        ------
        CacheError, CacheFullError
            Without a cache, or when it is full; nothing is kept then.
        """
        cache = self._running_cache()
        cache.begin(tokens.shape[1])
        poses: Tensor = self(tokens)
        cache.advance(tokens.shape[1], keep=keep)
        return poses

    @torch.no_grad()
    def forward(self, tokens: Tensor) -> Tensor:
        """Work of ``encode`` on the device alone, for a call that the cache has begun."""
        cache = self._running_cache()
        rope = self._rope(cache.frame_index, tokens.shape[1], tokens)
        return self.refine(tokens, cache.attend, rope)

    def _running_cache(self) -> CameraCache:
        if self.cache is None:
            raise CacheError("the camera head has no cache: call allocate() first")
        return self.cache

    @torch.no_grad()
    def without_cache(self, tokens: Tensor, frames_per_block: int) -> Tensor:
        """Encode poses with a block-causal mask and keep nothing; shapes as in ``forward``."""
        block = torch.arange(tokens.shape[1], device=tokens.device) // frames_per_block
        visible = block[None, :] <= block[:, None]

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=visible)

        return self.refine(tokens, lambda iteration, i: attend, self._rope(0, len(block), tokens))

    def refine(
        self,
        tokens: Tensor,
        attend: Callable[[int, int], Attend],
        rope: RotaryTable | None = None,
    ) -> Tensor:
        """Iterate over ``tokens [B, S, dim]``; ``attend(iteration, block)`` chooses the keys.

        Returns ``[iterations, B, S, 9]``.
        """
        x0 = self.token_norm(tokens)
        normed = F.layer_norm(x0, x0.shape[-1:], eps=1e-6)
        raw: Tensor | None = None
        poses = []
        for iteration in range(self.num_iterations):
            previous = self.empty_pose_tokens.expand(*x0.shape[:2], -1) if raw is None else raw
            shift, scale, gate = self.poseLN_modulation(self.embed_pose(previous)).chunk(3, dim=-1)
            x = gate * (normed * (1 + scale) + shift) + x0
            for i, block in enumerate(self.trunk):
                x = block(x, rope, attend(iteration, i))
            delta = self.pose_branch(self.trunk_norm(x)).float()
            raw = delta if raw is None else raw + delta
            poses.append(activate_pose(raw))
        return torch.stack(poses)

    def _rope(self, start: int, frames: int, tokens: Tensor) -> RotaryTable | None:
        if not self.enable_3d_rope:
            return None
        positions = torch.zeros(frames, 3, device=tokens.device)
        positions[:, 0] = torch.arange(start, start + frames)
        return rope_3d(positions, split_3d(self.head_dim), self.rope_theta)
