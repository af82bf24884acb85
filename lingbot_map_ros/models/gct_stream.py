# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The whole network, with the published call signatures on top of the streaming core."""

from typing import Any

import torch
from torch import Tensor

from lingbot_map_ros.aggregator.base import require_tensor
from lingbot_map_ros.aggregator.stream import FrameMode
from lingbot_map_ros.errors import InputError
from lingbot_map_ros.models.prediction import Prediction
from lingbot_map_ros.models.stream_core import StreamCore

__all__ = ["GCTStream", "Prediction"]


class GCTStream(StreamCore):
    """Streaming reconstruction network; the published calls carry a batch axis of one."""

    def forward(
        self,
        images: Tensor,
        num_frame_for_scale: int | None = None,
        num_frame_per_block: int = 1,
        causal_inference: bool = True,
    ) -> dict[str, Any]:
        """Process the next call of the stream.

        Parameters
        ----------
        images
            ``[1, S, 3, H, W]`` in [0, 1].
        num_frame_for_scale
            Scale frames of the sequence, the same in every call; by default those of the first.
        num_frame_per_block
            ``S`` in the first call, 1 afterwards.
        causal_inference
            False: a first call's camera poses come from a block-causal mask and the camera head
            keeps nothing. The aggregator's cache is filled either way.

        Returns
        -------
        dict
            ``pose_enc [1, S, 9]``, ``pose_enc_list`` (one for each refinement), ``depth
            [1, S, H, W, 1]``, ``depth_conf [1, S, H, W]`` and ``images``.

        Raises
        ------
        InputError
            For a batch of several streams or frames that do not fit the stream; see ``step``.
        """
        require_tensor(images)
        if images.ndim != 5 or images.shape[0] != 1:
            raise InputError(
                f"images must be [1, frames, 3, H, W], got {list(images.shape)}; run one model for "
                "each stream"
            )
        prediction = self.step(
            images[0],
            num_scale_frames=num_frame_for_scale,
            camera_block=None if causal_inference else num_frame_per_block,
        )
        return {**_with_batch_axis([prediction]), "images": images}

    def inference_streaming(
        self,
        images: Tensor,
        num_scale_frames: int | None = None,
        keyframe_interval: int = 1,
        output_device: torch.device | None = None,
    ) -> dict[str, Any]:
        """Reset, then stream a whole clip ``[S, 3, H, W]`` or ``[1, S, 3, H, W]``.

        Every ``keyframe_interval``-th frame after the scale frames is kept. With ``output_device``
        results move there frame by frame and the caches are emptied at the end. Returns the tensors
        of ``forward`` for all frames; raises what ``step`` raises.
        """
        require_tensor(images)
        frames = images[0] if images.ndim == 5 and images.shape[0] == 1 else images
        if frames.ndim != 4 or not len(frames):
            raise InputError(f"a clip must be [frames, 3, H, W], got {list(images.shape)}")
        if keyframe_interval < 1:
            raise InputError(f"keyframe_interval={keyframe_interval} must be at least 1")
        scale = min(num_scale_frames or self.config.num_scale_frames, len(frames))
        self.reset()
        predictions = []
        for start in (0, *range(scale, len(frames))):
            end = scale if start == 0 else start + 1
            keep = start == 0 or (start - scale) % keyframe_interval == 0
            mode: FrameMode = "keyframe" if keep else "skip"
            prediction = self.step(frames[start:end].to(self.device), mode)
            predictions.append(
                prediction if output_device is None else prediction.to(output_device)
            )
        if output_device is not None:
            self.reset()
        return {**_with_batch_axis(predictions), "images": images}

    def clean_kv_cache(self) -> None:
        """Start a new stream, like ``reset``."""
        self.reset()


def _with_batch_axis(predictions: list[Prediction]) -> dict[str, Any]:
    depths = [p.depth for p in predictions if p.depth is not None]
    confidences = [p.confidence for p in predictions if p.confidence is not None]
    refinements = zip(*(p.pose_enc_list for p in predictions), strict=True)
    return {
        "pose_enc": torch.cat([p.pose_enc for p in predictions])[None],
        "pose_enc_list": [torch.cat(poses)[None] for poses in refinements],
        "depth": torch.cat(depths)[None, ..., None],
        "depth_conf": torch.cat(confidences)[None],
    }
