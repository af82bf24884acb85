# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is made of a call's predictions on the device: the little of them that the host judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from lingbot_map_ros.geometry.poses import decode_pose, intrinsics_from_fov
from lingbot_map_ros.streaming.comparison import MAX_FLOW, Sketch, compare

if TYPE_CHECKING:
    from lingbot_map_ros.models.prediction import Prediction

THUMBNAIL_WIDTH = 70


class Summary(NamedTuple):
    """The predictions of S frames reduced on their device, where the host does not wait for it."""

    figures: Tensor
    """``[S, 9 or 12]``: ``pose_enc``; where depth was computed the medians of depth and confidence,
    and a sum that is finite if all of a frame's depth and confidence is. It is not finite either
    where they are so large that it overflows: nothing to be trusted. So the host need not read the
    maps again."""
    poses: Tensor
    """``[S, 4, 4]`` float64."""
    intrinsics: Tensor
    """``[S, 3, 3]`` float64."""
    thumbnails: Tensor
    """``[S, h, w]``, see `thumbnail_stride`."""
    thumbnail_intrinsics: Tensor
    """``[S, 3, 3]`` float64."""
    thumbnail_depth: Tensor | None = None
    """``[S, h, w]`` where depth was computed."""
    compared: Tensor | None = None
    """What `compare` says of the first frame and the one before; None where nothing can be said."""

    def sketch(self, i: int) -> Sketch:
        """What the next frame is compared with, if it comes after frame i."""
        depth = None if self.thumbnail_depth is None else self.thumbnail_depth[i]
        return Sketch(self.thumbnails[i], depth, self.poses[i], self.thumbnail_intrinsics[i])


@torch.no_grad()
def summarize(
    images: Sequence[Tensor],
    prediction: Prediction,
    last: Sketch | None = None,
    max_flow: float = MAX_FLOW,
) -> Summary:
    """Reduce the predictions of one call for images ``[3, H, W]`` in [0, 1], a frame each.

    The first is compared with ``last``, of the same window, where that is given.
    """
    size = images[0].shape[-2:]
    stride = thumbnail_stride(size[1])
    grey = torch.stack([image.mean(0) for image in images]) * 255
    thumbnails = avg_pool2d(grey[:, None], stride)[:, 0]
    figures, thinned = prediction.pose_enc, None
    if prediction.depth is not None and prediction.confidence is not None:
        half, (height, width) = stride // 2, thumbnails.shape[-2:]
        # Values at the centres of a thumbnail's pixels.
        maps = torch.stack(
            [
                values[:, half::stride, half::stride][:, :height, :width]
                for values in (prediction.depth, prediction.confidence)
            ],
            dim=1,
        )
        thinned = maps[:, 0]
        total = (prediction.depth + prediction.confidence).flatten(1).sum(1, keepdim=True)
        figures = torch.cat((figures, maps.flatten(2).median(-1).values, total), 1)
    poses, fov = decode_pose(prediction.pose_enc.double())
    intrinsics = intrinsics_from_fov(fov, (size[0], size[1]))
    # Of an image whose pixels are means over stride x stride pixels.
    reduced = intrinsics.clone()
    reduced[:, :2, 2] -= (stride - 1) / 2
    reduced[:, :2] /= stride
    summary = Summary(figures, poses, intrinsics, thumbnails, reduced, thinned)
    if last is None:
        return summary
    return summary._replace(compared=compare(last, summary.sketch(0), max_flow))


def thumbnail_stride(width: int) -> int:
    """Pixels of an image, each way, that a pixel of its thumbnail is the mean of.

    A thumbnail has grey levels in 0 to 255 and is about `THUMBNAIL_WIDTH` wide.
    """
    return max(1, round(width / THUMBNAIL_WIDTH))
