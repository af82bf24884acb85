# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The aggregator as a stream: scale frames in one call, then one frame a call through the cache."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from lingbot_map_ros.aggregator.base import AggregatorBase, ViTConfig
from lingbot_map_ros.errors import CacheError, InputError
from lingbot_map_ros.layers.attention import Attend, full_attention
from lingbot_map_ros.layers.attention_backends import check_backend
from lingbot_map_ros.layers.flashinfer_cache import FlashInferKVCacheManager
from lingbot_map_ros.layers.precision import cast_matmul_weights_

FrameMode = Literal["keyframe", "skip", "pending"]
"""What becomes of a frame: kept and the oldest evicted, no trace left, or undecided."""


class AggregatorStream(AggregatorBase):
    """Alternating attention over an endless stream with a paged key/value cache.

    Parameters
    ----------
    depth, num_heads, head_dim, mlp_ratio, patch_size, vit, selected_layers, enable_3d_rope, \
disable_global_rope
        The network (see ``AggregatorBase``); without ``vit`` patches are embedded by a convolution.
    tokens_per_frame
        Tokens that a frame must have; taken from the first call by default.
    use_sdpa
        True: gather-and-SDPA; False: FlashInfer, or an error; None: what the machine can do.
    fa3
        FlashInfer's Hopper kernel.
    scale_frames, sliding_window, max_total_frames, pending_frames
        Of the cache.
    device, dtype
        Where the network lives and what its matrix products are computed in.
    cache_dtype
        Of the cached keys and values; ``dtype`` by default.

    Raises
    ------
    BackendUnavailableError
        At construction, if the chosen back end cannot run here.
    """

    def __init__(
        self,
        depth: int = 24,
        num_heads: int = 16,
        head_dim: int = 64,
        tokens_per_frame: int | None = None,
        use_sdpa: bool | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        *,
        mlp_ratio: float = 4.0,
        patch_size: int = 14,
        vit: ViTConfig | None = None,
        selected_layers: tuple[int, ...] | None = None,
        enable_3d_rope: bool = True,
        disable_global_rope: bool = False,
        scale_frames: int = 8,
        sliding_window: int = 64,
        max_total_frames: int = 1124,
        pending_frames: int = 16,
        fa3: bool = False,
        cache_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            depth=depth,
            num_heads=num_heads,
            head_dim=head_dim,
            mlp_ratio=mlp_ratio,
            patch_size=patch_size,
            vit=vit,
            selected_layers=selected_layers,
            enable_3d_rope=enable_3d_rope,
            disable_global_rope=disable_global_rope,
        )
        self.tokens_per_frame = tokens_per_frame
        self.scale_frames = scale_frames
        self.sliding_window = sliding_window
        self.max_total_frames = max_total_frames
        self.pending_frames = pending_frames
        self.backend_name = {True: "sdpa", False: "flashinfer", None: "auto"}[use_sdpa]
        self.fa3 = fa3
        self.cache_dtype = cache_dtype
        self.kv_cache: FlashInferKVCacheManager | None = None
        self.place(torch.device(device), dtype)

    def place(self, device: torch.device, dtype: torch.dtype) -> None:
        """Move to ``device`` and compute matrix products in ``dtype``; drops the cache.

        Raises ``BackendUnavailableError`` when the chosen back end cannot run there.
        """
        if device.type == "meta":
            return
        # The cache waits for the first image's size; a back end that cannot run does not.
        check_backend(
            self.backend_name,
            head_dim=self.head_dim,
            dtype=self.cache_dtype or dtype,
            device=device,
            fa3=self.fa3,
        )
        self.kv_cache = None
        cast_matmul_weights_(self, device, dtype)
        self.to(device)
        self.set_image_statistics(device)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.camera_token.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the matrix products."""
        return next(m.weight.dtype for m in self.modules() if isinstance(m, nn.Linear))

    @property
    def num_frames(self) -> int:
        """Kept frames of this stream: also the temporal position of the next frame."""
        return 0 if self.kv_cache is None else self.kv_cache.num_frames

    def reset(self) -> None:
        """Start a new stream; the pools stay allocated."""
        if self.kv_cache is not None:
            self.kv_cache.reset()

    def allocate(self, tokens_per_frame: int) -> FlashInferKVCacheManager:
        """Cache for frames of this many tokens; a new one when the size changed between streams.

        Raises ``InputError`` when the size changes in mid-stream.
        """
        cache = self.kv_cache
        if cache is not None and cache.layout.tokens_per_frame == tokens_per_frame:
            return cache
        if cache is not None and cache.num_frames:
            raise InputError(
                f"a frame of {tokens_per_frame} tokens in a stream of "
                f"{cache.layout.tokens_per_frame}: the image size changed; call reset() first"
            )
        if self.tokens_per_frame not in (None, tokens_per_frame):
            raise InputError(
                f"frames must have tokens_per_frame={self.tokens_per_frame} tokens, got "
                f"{tokens_per_frame}"
            )
        self.kv_cache = None  # The old pools are freed before the new ones are taken.
        self.kv_cache = FlashInferKVCacheManager(
            num_blocks=len(self.global_blocks),
            max_num_frames=self.max_total_frames,
            tokens_per_frame=tokens_per_frame,
            num_heads=self.num_heads,
            head_dim=self.head_dim,
            dtype=self.cache_dtype or self.dtype,
            device=self.device,
            num_special_tokens=self.num_special,
            scale_frames=self.scale_frames,
            sliding_window=self.sliding_window,
            max_total_frames=self.max_total_frames,
            fa3=self.fa3,
            backend=self.backend_name,
            pending_frames=self.pending_frames,
        )
        return self.kv_cache

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
        scale = self.scale_frames if num_scale_frames is None else num_scale_frames
        tokens, grid = self._tokens(x, grid, scale)
        frames = tokens.shape[1]
        cache = self.allocate(tokens.shape[2])
        if frames > 1 and cache.num_frames:
            raise InputError(
                f"{frames} frames in one call after the stream began: only the first call may hold "
                "several; feed one frame a call, or call reset()"
            )
        if frames > 1 and mode != "keyframe":
            raise InputError("the scale frames of the first call are always kept")
        times = torch.arange(cache.num_frames, cache.num_frames + frames)
        attend = self._attend_together if frames > 1 else self._attend_through_cache
        state = cache.snapshot()
        kept = False
        try:
            if mode != "keyframe":
                cache._defer_eviction = True
            outputs = self.run_blocks(
                tokens,
                self.frame_rope(grid, tokens.device),
                self.global_rope(grid, times, tokens.device),
                attend,
            )
            kept = mode != "skip"
        finally:
            cache._defer_eviction = state[1]
            if not kept:
                cache.restore(state)
        return outputs

    def execute_deferred_eviction(self, keep_pending: int = 0) -> None:
        """Commit the pending frames, but the newest ``keep_pending``, in every block."""
        self._in_every_block(
            lambda cache, i: cache.execute_deferred_eviction(i, keep_pending=keep_pending)
        )

    def rollback_last_frame(self) -> None:
        """Undo the newest append in every block."""
        self._in_every_block(lambda cache, i: cache.rollback_last_frame(i))

    def _in_every_block(self, operation: Callable[[FlashInferKVCacheManager, int], None]) -> None:
        if self.kv_cache is None:
            raise CacheError("no frame has been processed yet")
        with self.kv_cache.transaction():
            for i in range(self.kv_cache.num_blocks):
                operation(self.kv_cache, i)

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

    def _running_cache(self) -> FlashInferKVCacheManager:
        """Cache of the running call."""
        if self.kv_cache is None:
            raise CacheError("no cache is allocated")
        return self.kv_cache
