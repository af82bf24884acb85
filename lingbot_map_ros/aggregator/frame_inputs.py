# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What differs from one streamed frame to the next, in fixed buffers that a CUDA graph can read."""

import torch
from torch import Tensor

from lingbot_map_ros.aggregator.base import AggregatorBase
from lingbot_map_ros.layers.rope import set_time, split_3d, time_rows


class FrameInputs:
    """Inputs of one frame of ``height x width`` after the scale frames.

    ``times``: temporal positions that frames of a stream can have.
    """

    def __init__(self, aggregator: AggregatorBase, height: int, width: int, times: int) -> None:
        token = aggregator.camera_token
        device = token.device
        self.size = (height, width)
        grid = aggregator.patch_embed.grid(height, width)
        self.image = torch.zeros((1, 3, height, width), device=device)
        self.special = torch.zeros((1, aggregator.num_special, aggregator.embed_dim), device=device)
        self.frame_rope = aggregator.frame_rope(grid, device)
        self.global_rope = aggregator.global_rope(grid, torch.zeros(1), device)
        self._times: Tensor | None = None
        if self.global_rope is not None and aggregator.enable_3d_rope:
            # On the device, so that a frame's time costs the host two launches.
            self._times = time_rows(times, split_3d(aggregator.head_dim)[0], device)

    def load(self, image: Tensor, special: Tensor, time: int) -> None:
        """Take the next frame: ``image [1, 3, H, W]``, special tokens, temporal position."""
        # Blocking: the caller may reuse pinned memory as soon as the step has returned.
        self.image.copy_(image)
        self.special.copy_(special)
        if self.global_rope is not None and self._times is not None:
            set_time(self.global_rope, self._times, time)
