# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The network as a stream whose every call is a transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from typing_extensions import Self

from lingbot_map_ros.aggregator.base import require_tensor
from lingbot_map_ros.aggregator.stream import FrameMode
from lingbot_map_ros.errors import CacheError, CacheFullError, InputError, RollbackError
from lingbot_map_ros.models.network import Network
from lingbot_map_ros.models.prediction import Prediction


class StreamCore(Network):
    """The network with one transaction around its caches; arguments as for ``Network``."""

    _pending: int
    _scale_frames: int

    def place(self, device: torch.device, dtype: torch.dtype) -> Self:
        """Move, as ``Network.place``, to the beginning of a stream."""
        super().place(device, dtype)
        self._pending = self._scale_frames = 0
        return self

    @property
    def num_frames(self) -> int:
        """Kept frames of the stream, pending ones included."""
        return self.aggregator.num_frames

    @property
    def num_pending(self) -> int:
        """Frames that wait for ``commit`` or ``rollback``."""
        return self._pending

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
            raise CacheError(f"keep_pending={keep_pending}, but {self._pending} pending")
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
                f"frames are pending ({self._pending}): commit or roll them back before a keyframe "
                "that evicts"
            )
        if mode == "pending" and self._pending >= self.pending_limit:
            raise CacheFullError(
                f"pending_limit ({self._pending}) is reached: commit or roll back, or raise it"
            )
        if mode != "skip" and self.num_frames + images.shape[0] > self.capacity:
            raise CacheFullError(
                f"the stream keeps {self.num_frames} of at most {self.capacity} frames; reset, "
                "open a new window, or raise max_keyframes"
            )
