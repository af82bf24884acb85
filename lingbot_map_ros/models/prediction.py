# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the network says about the frames of one call."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Prediction:
    """Output of a call, float32 on the model's device.

    ``pose_enc [S, 9]``: translation, quaternion xyzw (not normalised), vertical and horizontal
    field of view in radians; camera-to-world. ``depth [S, H, W]`` along the optical axis and
    ``confidence [S, H, W]`` (at least 1), or None where depth was not asked for. Units are the
    model's own. ``pose_enc_list`` holds the encoding after each refinement of the camera head.
    """

    pose_enc: Tensor
    depth: Tensor | None
    confidence: Tensor | None
    pose_enc_list: tuple[Tensor, ...]

    def to(self, device: torch.device) -> "Prediction":
        """Copy on ``device``."""
        return Prediction(
            self.pose_enc.to(device),
            None if self.depth is None else self.depth.to(device),
            None if self.confidence is None else self.confidence.to(device),
            tuple(pose.to(device) for pose in self.pose_enc_list),
        )
