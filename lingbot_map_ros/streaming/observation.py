# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the network said of a frame, in the raw world of the window that saw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from lingbot_map_ros.geometry.poses import is_valid_pose
from lingbot_map_ros.streaming.comparison import MAX_FLOW, Comparison, Sketch
from lingbot_map_ros.streaming.frame import Frame
from lingbot_map_ros.streaming.summary import summarize

if TYPE_CHECKING:
    from lingbot_map_ros.models.prediction import Prediction
    from lingbot_map_ros.streaming.summary_recorder import SummaryRecorder


@dataclass(frozen=True, eq=False)
class Observation:
    """One frame's output: camera-to-world pose, intrinsics, and depth where it was computed."""

    frame: Frame
    pose: NDArray[np.float64]
    """``[4, 4]``, optical axes, raw units of the window."""
    intrinsics: NDArray[np.float64]
    """``[3, 3]`` in pixels of the network's image, as the network sees its lens."""
    depth: NDArray[np.float32] | None
    confidence: NDArray[np.float32] | None
    valid: bool
    """Everything is finite and the encoding is a pose; see ``geometry.poses.is_valid_pose``."""
    typical_depth: float | None
    typical_confidence: float | None
    """Medians over as many pixels as the thumbnail has."""
    sketch: Sketch
    comparison: Comparison | None = None
    """With the frame before, None where nothing can be said."""


def observe(
    frames: Sequence[Frame],
    prediction: Prediction,
    last: Observation | None = None,
    max_flow: float = MAX_FLOW,
    recorder: SummaryRecorder | None = None,
) -> list[Observation]:
    """Bring the predictions of one call to the host, a frame each.

    The first is compared with ``last``, of the same window, where that is given; see `summarize`,
    which a ``recorder`` may do faster.
    """
    images = [frame.tensor for frame in frames]
    sketch = None if last is None else last.sketch
    summary = (recorder or summarize)(images, prediction, sketch, max_flow)
    # All in one copy, which waits for the network but once; a GPU is still at work until then.
    new = [frame for frame in frames if not frame.is_on_host]
    figures, poses, intrinsics, depth, confidence, compared, *pixels = to_host(
        summary.figures,
        summary.poses,
        summary.intrinsics,
        prediction.depth,
        prediction.confidence,
        summary.compared,
        *(frame.on_device() for frame in new),
    )
    for frame, image in zip(new, pixels, strict=True):
        frame.remember(image)
    valid = is_valid_pose(figures[:, :9]) & np.isfinite(figures).all(1)
    measured = figures.shape[1] > 9
    return [
        Observation(
            frame=frame,
            pose=poses[i],
            intrinsics=intrinsics[i],
            depth=None if depth is None else depth[i],
            confidence=None if confidence is None else confidence[i],
            valid=bool(valid[i]),
            typical_depth=float(figures[i, 9]) if measured else None,
            typical_confidence=float(figures[i, 10]) if measured else None,
            sketch=summary.sketch(i),
            comparison=None if i or compared is None else Comparison.of(compared),
        )
        for i, frame in enumerate(frames)
    ]


def to_host(*tensors: torch.Tensor | None) -> list[Any]:
    """Copy tensors to arrays on the host, from a GPU all at once; None stays None."""
    device = next((t.device for t in tensors if t is not None and t.is_cuda), None)
    if device is None:
        return [None if tensor is None else tensor.numpy() for tensor in tensors]
    copies = [
        # Into pinned memory, which a GPU writes several times faster.
        tensor if tensor is None else torch.empty_like(tensor, device="cpu", pin_memory=True)
        for tensor in tensors
    ]
    for tensor, copy in zip(tensors, copies, strict=True):
        if tensor is not None and copy is not None:
            copy.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream(device).synchronize()
    return [None if copy is None else copy.numpy() for copy in copies]
