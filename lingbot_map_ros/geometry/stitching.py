# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The reference's windowed mode: spans of overlapping windows, their alignment and stitching.

The baseline that the robust alignment of `alignment.py` is compared with: the last shared keyframe
alone fixes rotation and translation.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.geometry.poses import matrix_to_quaternion, quaternion_to_matrix
from lingbot_map_ros.geometry.sim3 import IDENTITY, Sim3

_log = logging.getLogger(__name__)

SCALE_LIMITS = (1e-3, 1e3)
MIN_DIVISOR = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, eq=False)
class Window:
    """The outputs of one window of F frames, in the window's own world and scale."""

    pose_enc: NDArray
    """[F, 9]"""
    depth: NDArray
    """[F, ...]"""
    confidence: NDArray
    """[F, ...]"""
    is_keyframe: NDArray[np.bool_]
    """[F]"""

    def __len__(self) -> int:
        return len(self.pose_enc)

    def moved(self, transform: Sim3) -> Window:
        """Return the window in the world that `transform` leads to; quaternions become unit."""
        R = transform.R @ quaternion_to_matrix(self.pose_enc[:, 3:7])
        pose_enc = np.concatenate(
            (
                transform.apply(self.pose_enc[:, :3]),
                matrix_to_quaternion(R),
                self.pose_enc[:, 7:],
            ),
            -1,
        )
        return replace(self, pose_enc=pose_enc, depth=self.depth * transform.scale)


def window_spans(
    total: int, window_size: int, num_scale_frames: int, interval: int, overlap_keyframes: int
) -> tuple[list[tuple[int, int]], int]:
    """Lay windows over a clip of `total` frames; return their [start, end) and the frame overlap.

    `window_size` and `overlap_keyframes` count keyframes, scale frames included; every
    `interval`-th later frame is a keyframe. Raises ConfigurationError for settings by which the
    stitching would lose frames or find no shared keyframe.
    """
    overlap = max(num_scale_frames, overlap_keyframes * interval)
    length = num_scale_frames + (window_size - num_scale_frames) * interval
    if interval < 1 or num_scale_frames < 1:
        raise ConfigurationError("num_scale_frames and the keyframe interval must be at least 1")
    if window_size <= num_scale_frames:
        raise ConfigurationError(
            f"window_size {window_size} must exceed num_scale_frames {num_scale_frames}"
        )
    if overlap < interval:
        raise ConfigurationError(
            f"an overlap of length {overlap} can hold no keyframe of interval {interval}; "
            "set overlap_keyframes to at least 1"
        )
    if overlap >= length:
        raise ConfigurationError(
            f"the overlap ({overlap}) must be shorter than the window ({length}); "
            "raise window_size or lower overlap_keyframes"
        )
    spans: list[tuple[int, int]] = []
    start = 0
    while not spans or spans[-1][1] < total:
        spans.append((start, min(start + length, total)))
        start += length - overlap
    return spans, overlap


def align_window(previous: Window, current: Window, overlap: int) -> Sim3:
    """Fit `current` to the already aligned `previous`, whose last frames are current's first.

    Rotation and translation come from the last frame that is a keyframe in both, scale from the
    lower median of depth ratios over all such frames. Raises ConfigurationError if the windows
    are shorter than the overlap.
    """
    if not 0 < overlap <= min(len(previous), len(current)):
        raise ConfigurationError(
            f"windows of lengths {len(previous)} and {len(current)} cannot share {overlap}"
        )
    first = len(previous) - overlap
    paired = np.flatnonzero(previous.is_keyframe[first:] & current.is_keyframe[:overlap])
    if not len(paired):
        _log.warning("no keyframe is shared by two windows; their first shared frame aligns them")
        paired = np.array([0])
    scale = _depth_ratio(previous.depth[first + paired], current.depth[paired])
    prev, cur = previous.pose_enc[first + paired[-1]], current.pose_enc[paired[-1]]
    R = quaternion_to_matrix(prev[3:7]) @ quaternion_to_matrix(cur[3:7]).T
    return Sim3(scale, R, prev[:3] - scale * R @ cur[:3])


def stitch(windows: Sequence[Window], overlap: int) -> tuple[Window, list[Sim3]]:
    """Align windows one by one and join them; shared frames come from the later window.

    Returns the whole clip in the first window's world and each window's transform into it.
    """
    transforms = [IDENTITY]
    aligned = [windows[0].moved(transforms[0])]
    for window in windows[1:]:
        transforms.append(align_window(aligned[-1], window, overlap))
        aligned.append(window.moved(transforms[-1]))
    kept = [slice(0, len(window) - overlap) for window in aligned[:-1]] + [slice(None)]
    pairs = list(zip(aligned, kept, strict=True))
    joined = Window(
        np.concatenate([window.pose_enc[part] for window, part in pairs]),
        np.concatenate([window.depth[part] for window, part in pairs]),
        np.concatenate([window.confidence[part] for window, part in pairs]),
        np.concatenate([window.is_keyframe[part] for window, part in pairs]),
    )
    return joined, transforms


def _depth_ratio(previous: NDArray, current: NDArray) -> float:
    valid = np.isfinite(previous) & np.isfinite(current) & (np.abs(current) > MIN_DIVISOR)
    ratios = previous[valid].astype(np.float64) / current[valid]
    ratios = ratios[np.isfinite(ratios)]
    if not len(ratios):
        return 1.0
    lower = (len(ratios) - 1) // 2
    return float(np.clip(np.partition(ratios, lower)[lower], *SCALE_LIMITS))
