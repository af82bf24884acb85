# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The aggregator as a stream: scale frames in one call, then one frame a call through the cache."""

import math

import torch
from torch import Tensor

from lingbot_map_ros.aggregator.base import require_tensor
from lingbot_map_ros.aggregator.paged import FrameMode, PagedAggregator
from lingbot_map_ros.errors import InputError
from lingbot_map_ros.layers.attention import Attend, full_attention

__all__ = ["AggregatorStream", "FrameMode"]


class AggregatorStream(PagedAggregator):
    """Alternating attention over an endless stream; arguments as for ``PagedAggregator``."""

    @torch.no_grad()
    def forward(
        self,
        x: Tensor,
        causal_inference: bool = True,
        *,
        mode: FrameMode = "keyframe",
        num_scale_frames: int | None = None,
        grid: tuple[int, int] | None = None,
    ) -> list[Tensor]:
        """Process the next call of the stream and return the selected outputs.

        Parameters
        ----------
        x
            Images ``[1, S, 3, H, W]`` in [0, 1], or a frame's tokens ``[1, P, heads, head_dim]``
            with the special tokens already in front. The first call may hold several frames, which
            see each other; every later call holds one.
        causal_inference
            Part of the published signature: the camera head reads it, the aggregator fills its
            cache either way.
        mode
            ``keyframe``: append, evict, attend. ``skip``: attend and leave no trace. ``pending``:
            append and attend with eviction deferred until commit or rollback.
        num_scale_frames
            Frames that carry the scale token's first variant; the cache's scale frames by default.
        grid
            Patch rows and columns of tokenised input; square by default.

        Returns
        -------
        list[Tensor]
            One ``[1, S, P, 2 * dim]`` for each selected layer.

        Raises
        ------
        InputError, CacheFullError
            And whatever a block raises; the stream is then as it was before the call.
        """
        require_tensor(x)
        if x.ndim == 5 and x.shape[0] == 1 and self.num_frames:
            with self.next_frame(x[0], mode, num_scale_frames):
                return self.run_frame()
        scale = self.scale_frames if num_scale_frames is None else num_scale_frames
        tokens, grid = self._tokens(x, grid, scale)
        frames = tokens.shape[1]
        cache = self.allocate(tokens.shape[2])
        if frames > 1 and mode != "keyframe":
            raise InputError("the scale frames of the first call are always kept")
        times = torch.arange(cache.num_frames, cache.num_frames + frames)
        attend = self._attend_together if frames > 1 else self._attend_through_cache
        with cache.transaction(deferred=mode != "keyframe", keep=mode != "skip"):
            return self.run_blocks(
                tokens,
                self.frame_rope(grid, tokens.device),
                self.global_rope(grid, times, tokens.device),
                attend,
            )

    def _tokens(
        self, x: Tensor, grid: tuple[int, int] | None, num_scale_frames: int
    ) -> tuple[Tensor, tuple[int, int]]:
        """Tokens ``[1, S, P, dim]`` of images or tokenised features, and their patch grid."""
        if x.ndim not in (4, 5) or x.shape[0] != 1:
            raise InputError(
                "expected images [1, frames, 3, H, W] or tokens [1, tokens, heads, head_dim] of "
                f"one stream, got {list(x.shape)}; run one model a stream"
            )
        if x.ndim == 5:
            images = x[0].to(self.device)
            patches = self.embed_patches(images)
            special = self.special_tokens(self.num_frames, images.shape[0], num_scale_frames)
            tokens = torch.cat((special, patches), dim=1).float()
            return tokens[None], self.patch_embed.grid(*images.shape[-2:])
        if x.shape[2] * x.shape[3] != self.embed_dim:
            raise InputError(
                f"tokens must be [1, tokens, {self.num_heads}, {self.head_dim}], got "
                f"{list(x.shape)}"
            )
        patches_per_frame = x.shape[1] - self.num_special
        if grid is None:
            side = math.isqrt(max(patches_per_frame, 0))
            grid = (side, side)
        if patches_per_frame < 1 or grid[0] * grid[1] != patches_per_frame:
            raise InputError(
                f"{x.shape[1]} tokens are {self.num_special} special ones and {patches_per_frame} "
                f"patches, which is no {grid[0]}x{grid[1]} grid; give grid=(rows, columns)"
            )
        return x.to(self.device).flatten(2)[:, None].float(), grid

    def _attend_through_cache(self, block: int) -> Attend:
        """One frame: append, evict unless deferred, attend to what is visible."""
        cache = self._running_cache()

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.append_frame(block, k[0].transpose(0, 1), v[0].transpose(0, 1))
            cache.evict_frames(block)
            return cache.compute_attention(block, q[0].transpose(0, 1)).transpose(0, 1)[None]

        return attend

    def _attend_together(self, block: int) -> Attend:
        """Scale frames: attend to each other, then enter the cache one after the other."""
        cache = self._running_cache()
        size = cache.layout.tokens_per_frame

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            frames = zip(k[0].transpose(0, 1).split(size), v[0].transpose(0, 1).split(size))
            for frame_k, frame_v in frames:
                cache.append_frame(block, frame_k, frame_v)
                cache.evict_frames(block)
            return full_attention(q, k, v)

        return attend
