# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The aggregator with its paged cache: where it lives, and one frame after the other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from lingbot_map_ros.aggregator.base import AggregatorBase, ViTConfig
from lingbot_map_ros.aggregator.frame_inputs import FrameInputs
from lingbot_map_ros.errors import CacheError, InputError
from lingbot_map_ros.layers.attention import Attend
from lingbot_map_ros.layers.attention_backends import check_backend
from lingbot_map_ros.layers.flashinfer_cache import FlashInferKVCacheManager
from lingbot_map_ros.layers.precision import place_weights_

FrameMode = Literal["keyframe", "skip", "pending"]
"""What becomes of a frame: kept and the oldest evicted, no trace left, or undecided."""


class PagedAggregator(AggregatorBase):
    """Alternating attention with a paged key/value cache of fixed size.

    Parameters
    ----------
    depth, num_heads, head_dim, mlp_ratio, patch_size, vit, selected_layers, enable_3d_rope, \
disable_global_rope
        The network (see ``AggregatorBase``); without ``vit`` patches are embedded by a convolution.
    tokens_per_frame
        Tokens that a frame must have; taken from the first call by default.
    use_sdpa
        True: gather-and-SDPA; False: FlashInfer, or an error; None: what the machine can do.
    kernel
        FlashInfer's (see ``KERNELS``), or ``auto`` to measure.
    scale_frames, sliding_window, max_total_frames, pending_frames
        Of the cache.
    device, dtype
        Where the network lives and what its matrix products are computed in.
    cache_dtype
        Of the cached keys and values; what attention computes in by default.

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
        kernel: str = "auto",
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
        self.kernel = kernel
        self.cache_dtype = cache_dtype
        self.kv_cache: FlashInferKVCacheManager | None = None
        self.inputs: FrameInputs | None = None
        """Of the frame that ``run_frame`` runs; new ones for another image size."""
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
            dtype=dtype,
            cache_dtype=self.cache_dtype or dtype,
            device=device,
            kernel=self.kernel,
        )
        self.kv_cache = self.inputs = None
        place_weights_(self, device, dtype)
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
            backend=self.backend_name,
            pending_frames=self.pending_frames,
            kernel=self.kernel,
            query_dtype=self.dtype,
        )
        return self.kv_cache

    @contextmanager
    def next_frame(
        self, images: Tensor, mode: FrameMode, num_scale_frames: int | None = None
    ) -> Iterator[None]:
        """Enter the next frame ``images [1, 3, H, W]`` of a running stream into the cache.

        ``run_frame`` belongs in the body. A body that raises leaves the stream as it was, and so
        does any body in mode ``skip``. Raises ``InputError`` and ``CacheFullError``.
        """
        self.check_images(images)
        if len(images) != 1:
            raise InputError(
                f"{len(images)} frames in one call after the stream began: only the first call may "
                "hold several; feed one frame a call, or call reset()"
            )
        height, width = images.shape[-2:]
        rows, columns = self.patch_embed.grid(height, width)
        cache = self.allocate(self.num_special + rows * columns)
        if self.inputs is None or self.inputs.size != (height, width):
            self.inputs = FrameInputs(self, height, width, self.max_total_frames)
        scale = self.scale_frames if num_scale_frames is None else num_scale_frames
        time = cache.num_frames
        with cache.transaction(deferred=mode != "keyframe", keep=mode != "skip"):
            cache.begin_frame()
            self.inputs.load(images, self.special_tokens(time, 1, scale), time)
            yield

    def run_frame(self) -> list[Tensor]:
        """Selected outputs for the frame of ``next_frame``, each ``[1, 1, P, 2 * dim]``.

        Works on the device alone, on fixed buffers.
        """
        inputs, cache = self.inputs, self._running_cache()
        if inputs is None:
            raise CacheError("run_frame() belongs in the body of next_frame()")
        patches = self.embed_patches(inputs.image)
        tokens = torch.cat((inputs.special, patches), dim=1).float()

        def attend_in(block: int) -> Attend:
            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                cache.write(block, k[0].transpose(0, 1), v[0].transpose(0, 1))
                return cache.attend(block, q[0].transpose(0, 1)).transpose(0, 1)[None]

            return attend

        return self.run_blocks(tokens[None], inputs.frame_rope, inputs.global_rope, attend_in)

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

    def _running_cache(self) -> FlashInferKVCacheManager:
        """Cache of the running call."""
        if self.kv_cache is None:
            raise CacheError("no cache is allocated")
        return self.kv_cache
