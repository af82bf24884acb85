# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The network as a stream whose every call is a transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from typing_extensions import Self

from lingbot_map_ros.aggregator.base import require_tensor
from lingbot_map_ros.aggregator.stream import AggregatorStream, FrameMode
from lingbot_map_ros.errors import (
    CacheError,
    CacheFullError,
    ConfigurationError,
    InputError,
    RollbackError,
)
from lingbot_map_ros.heads.camera_cache import CameraCache
from lingbot_map_ros.heads.camera_head import CameraHead
from lingbot_map_ros.heads.dpt_head import DPTHead
from lingbot_map_ros.layers.attention import attention_dtype
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.frame_runner import FrameRunner
from lingbot_map_ros.models.prediction import Prediction


def use_sdpa_of(attention_backend: str) -> bool | None:
    """``use_sdpa`` for the name of a back end; ``ConfigurationError`` for an unknown one."""
    choices = {"auto": None, "flashinfer": False, "sdpa": True}
    if attention_backend not in choices:
        raise ConfigurationError(
            f"attention_backend '{attention_backend}' is none of {', '.join(choices)}"
        )
    return choices[attention_backend]


class StreamCore(nn.Module):
    """Aggregator, camera head and depth head with one transaction around them.

    Parameters
    ----------
    config
        Sizes and streaming defaults.
    attention_backend
        ``auto``, ``flashinfer`` or ``sdpa``.
    pending_limit
        Frames that may wait for commit or rollback at a time.
    cache_dtype
        Of the cached keys and values; the compute dtype by default.
    kernel
        FlashInfer's attention kernel (see ``KERNELS``); ``auto`` measures which is the fastest.
    compile
        Compile what lies between the attention calls, on a GPU that Triton serves. The first frames
        take up to a minute then; later starts find the result in PyTorch's cache.
    """

    def __init__(
        self,
        config: GCTConfig,
        *,
        attention_backend: str = "auto",
        pending_limit: int = 16,
        cache_dtype: torch.dtype | None = None,
        kernel: str = "auto",
        compile: bool = True,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if pending_limit < 1:
            raise ConfigurationError(f"pending_limit={pending_limit} must be at least 1")
        self.config = config
        self.pending_limit = pending_limit
        self.capacity = config.max_keyframes + pending_limit
        self.aggregator = AggregatorStream(
            depth=config.depth,
            num_heads=config.num_heads,
            head_dim=config.head_dim,
            use_sdpa=use_sdpa_of(attention_backend),
            device=device,
            dtype=dtype,
            mlp_ratio=config.mlp_ratio,
            patch_size=config.patch_size,
            vit=config.vit,
            selected_layers=config.selected_layers,
            enable_3d_rope=config.enable_3d_rope,
            disable_global_rope=config.disable_global_rope,
            scale_frames=config.num_scale_frames,
            sliding_window=config.sliding_window,
            max_total_frames=self.capacity + 1,  # A frame that will be skipped stands there too.
            pending_frames=pending_limit,
            kernel=kernel,
            cache_dtype=cache_dtype,
        )
        self.camera_head = CameraHead(
            2 * config.embed_dim,
            config.camera_num_heads,
            trunk_depth=config.camera_trunk_depth,
            num_iterations=config.camera_iterations,
            mlp_ratio=config.mlp_ratio,
            enable_3d_rope=config.enable_camera_3d_rope,
            rope_theta=config.camera_rope_theta,
        )
        self.depth_head = DPTHead(
            2 * config.embed_dim,
            features=config.depth_features,
            channels=config.depth_channels,
            patch_size=config.patch_size,
            num_special=self.aggregator.num_special,
        )
        self._pending = 0
        self._scale_frames = 0
        self._compile = compile
        self._fast: FrameRunner | None = None
        self.eval()
        self.place(torch.device(device), dtype)

    def place(self, device: torch.device, dtype: torch.dtype) -> Self:
        """Move to ``device`` with matrix products in ``dtype``; the camera head stays float32.

        So does the depth head but on a GPU. Drops all caches. Raises ``BackendUnavailableError``
        when the back end cannot run there.
        """
        self.aggregator.place(device, dtype)
        self.camera_head.cache = self._fast = None
        if device.type == "cuda":
            self.depth_head.place_on_gpu_(device, dtype)
        if device.type != "meta":
            self.to(device)
        self._pending = self._scale_frames = 0
        return self

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.aggregator.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the trunk's matrix products."""
        return self.aggregator.dtype

    @property
    def precision(self) -> str:
        """In what matrix products and attention are computed, and keys and values are cached."""
        attention = attention_dtype(self.device, self.dtype)
        parts = {
            "products": self.dtype,
            "attention": attention,
            "cache": self.aggregator.cache_dtype or attention,
        }
        return ", ".join(f"{k} {str(v).removeprefix('torch.')}" for k, v in parts.items())

    @property
    def num_frames(self) -> int:
        """Kept frames of the stream, pending ones included."""
        return self.aggregator.num_frames

    @property
    def num_pending(self) -> int:
        """Frames that wait for ``commit`` or ``rollback``."""
        return self._pending

    def allocate(self, height: int, width: int) -> CameraCache:
        """Take the caches for images ``height x width`` now rather than in the first call.

        Returns the camera head's. Raises ``InputError`` for a size that is no multiple of the patch
        or differs from that of the running stream.
        """
        rows, columns = self.aggregator.patch_embed.grid(height, width)
        self.aggregator.allocate(self.aggregator.num_special + rows * columns)
        return self.camera_head.allocate(self.capacity + 1, self.device)

    def memory_bytes(self) -> dict[str, int]:
        """Bytes taken by weights and allocated caches."""
        cache, camera = self.aggregator.kv_cache, self.camera_head.cache
        return {
            "weights": sum(p.numel() * p.element_size() for p in self.parameters()),
            "kv_cache": cache.nbytes if cache is not None else 0,
            "camera_cache": camera.nbytes if camera is not None else 0,
        }

    def reset(self) -> None:
        """Start a new stream; the caches stay allocated."""
        self.aggregator.reset()
        if self.camera_head.cache is not None:
            self.camera_head.cache.reset()
        self._pending = self._scale_frames = 0

    @torch.no_grad()
    def step(
        self,
        images: Tensor,
        mode: FrameMode = "keyframe",
        *,
        depth: bool = True,
        num_scale_frames: int | None = None,
        camera_block: int | None = None,
    ) -> Prediction:
        """Process the next frames of the stream.

        Parameters
        ----------
        images
            ``[S, 3, H, W]`` in [0, 1]. The first call after ``reset`` holds the scale frames, which
            see each other; every later call holds one frame.
        mode
            ``keyframe``, ``skip`` or ``pending`` (see ``AggregatorStream.forward``); the scale
            frames are always keyframes.
        depth
            Whether to run the depth head.
        num_scale_frames
            Frames that count as scale frames; those of the first call by default.
        camera_block
            Frames of a block of the camera head's causal mask, for a first call whose poses shall
            not enter the camera cache.

        Raises
        ------
        InputError, CacheError
            For input that does not fit, a full cache, or a keyframe while frames are pending. The
            stream is as it was before the call after these and any other exception.
        """
        self._check_step(images, mode)
        with self.transaction():
            height, width = images.shape[-2:]
            camera = self.allocate(height, width)
            if self.num_frames:
                with self.aggregator.next_frame(images, mode, self._scale_frames):
                    camera.begin(1)
                    poses, *maps = self._runner().frame(height, width, depth=depth)
                    camera.advance(1, keep=mode != "skip")
            else:
                self._scale_frames = num_scale_frames or images.shape[0]
                poses, *maps = self._runner().scale_frames(
                    images.to(self.device),
                    depth=depth,
                    num_scale_frames=self._scale_frames,
                    camera_block=camera_block,
                )
            self._pending += mode == "pending"
        return Prediction(
            pose_enc=poses[-1],
            depth=maps[0] if depth else None,
            confidence=maps[1] if depth else None,
            pose_enc_list=tuple(poses),
        )

    def commit(self, keep_pending: int = 0) -> int:
        """Keep the pending frames for good, but the newest ``keep_pending``; returns how many."""
        committed = self._pending - keep_pending
        if keep_pending < 0 or committed < 0:
            raise CacheError(f"keep_pending={keep_pending} with {self._pending} pending frames")
        if committed:
            with self.transaction():
                self.aggregator.execute_deferred_eviction(keep_pending)
                self._pending = keep_pending
        return committed

    def rollback(self) -> None:
        """Drop the newest pending frame everywhere; ``RollbackError`` if none is pending."""
        if not self._pending or self.camera_head.cache is None:
            raise RollbackError(
                "no frame is pending: only frames processed with mode='pending' since the last "
                "commit can be rolled back"
            )
        with self.transaction():
            self.aggregator.rollback_last_frame()
            self.camera_head.cache.rollback()
            self._pending -= 1

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Bring every cache and counter back if the body raises.

        For a body of one ``step`` and what decides about it. After several, what they evicted or
        rolled back may be overwritten; after ``reset`` the stream is left empty.
        """
        cache, camera = self.aggregator.kv_cache, self.camera_head.cache
        state = (
            cache.snapshot() if cache is not None else None,
            camera.snapshot() if camera is not None else (0, 0),
            self._pending,
            self._scale_frames,
        )
        try:
            yield
        except BaseException:
            if self.aggregator.kv_cache is cache and cache is not None and state[0] is not None:
                cache.restore(state[0])
            else:
                self.aggregator.reset()
            self._pending, self._scale_frames = state[2:]
            if self.camera_head.cache is not None:
                try:
                    self.camera_head.cache.restore(state[1])
                except CacheError:
                    self.reset()
            raise

    def _runner(self) -> FrameRunner:
        if self._fast is None:
            self._fast = FrameRunner(
                self.aggregator, self.camera_head, self.depth_head, compile=self._compile
            )
        return self._fast

    def _check_step(self, images: Tensor, mode: FrameMode) -> None:
        if mode not in ("keyframe", "skip", "pending"):
            raise InputError(f"mode '{mode}' is none of keyframe, skip, pending")
        require_tensor(images)
        if images.ndim != 4 or not images.shape[0]:
            raise InputError(f"images must be [frames, 3, H, W], got {list(images.shape)}")
        if not self.num_frames and mode != "keyframe":
            raise InputError("a stream begins with its scale frames, which are keyframes")
        if mode == "keyframe" and self._pending:
            raise CacheError(
                f"{self._pending} frames are pending: commit or roll them back before a keyframe "
                "that evicts"
            )
        if mode == "pending" and self._pending >= self.pending_limit:
            raise CacheFullError(
                f"{self._pending} frames are pending, the limit: commit or roll back, or raise "
                "pending_limit"
            )
        if mode != "skip" and self.num_frames + images.shape[0] > self.capacity:
            raise CacheFullError(
                f"the stream keeps {self.num_frames} of at most {self.capacity} frames; reset, "
                "open a new window, or raise max_keyframes"
            )
