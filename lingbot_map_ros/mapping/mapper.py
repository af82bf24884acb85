# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From frame results to a map: trajectory, keyframes and voxels of one epoch."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.geometry.projection import transform_points, unproject
from lingbot_map_ros.geometry.sim3 import IDENTITY, Sim3
from lingbot_map_ros.integers import require_integers
from lingbot_map_ros.mapping.export import CameraView, write_ply
from lingbot_map_ros.mapping.trajectory import ThinningLog, Trajectory
from lingbot_map_ros.mapping.voxel_map import VoxelMap
from lingbot_map_ros.streaming.results import FrameResult

logger = logging.getLogger(__name__)

_MAX_CAMERAS = 20_000
_JUDGED_AFTER = 10
"""Keyframes with depth after which the share of confident depth is judged."""
_SPARSE = 0.05
_WORTH_KEEPING = 0.7
"""Share of the depth that the advised limit keeps: the confidence ranks errors, it has no unit."""


@dataclass(frozen=True)
class MapperOptions:
    """What enters the map and how much is kept; lengths in model units."""

    voxel_size: float = 0.05
    max_points: int = 5_000_000
    confidence_min: float = 1.5
    stride: int = 2
    """Rows and columns of depth between two points of the map."""
    path_max_length: int = 5000

    def __post_init__(self) -> None:
        require_integers(self)


def confident_points(
    result: FrameResult, stride: int, confidence_min: float
) -> tuple[NDArray[np.float32], NDArray[np.uint8], NDArray[np.float32]]:
    """Points [N, 3] in the camera's optical frame, colours [N, 3] and confidences [N] of a frame.

    Every `stride`-th row and column is looked at; what is not finite, not in front of the camera
    or less confident than `confidence_min` is left out. Empty without depth.
    """
    if result.depth is None:
        return np.empty((0, 3), np.float32), np.empty((0, 3), np.uint8), np.empty(0, np.float32)
    depth = result.depth[::stride, ::stride]
    if result.confidence is None:
        confidence = np.ones_like(depth)
        valid = np.isfinite(depth) & (depth > 0)
    else:
        confidence = result.confidence[::stride, ::stride]
        valid = np.isfinite(depth) & (depth > 0) & (confidence >= confidence_min)
        valid &= np.isfinite(confidence)
    points = unproject(result.depth, result.intrinsics, stride).reshape(-1, 3)
    colors = result.image[::stride, ::stride].reshape(-1, 3)
    seen = np.flatnonzero(valid)
    return points.take(seen, 0), colors.take(seen, 0), confidence.ravel().take(seen)


class Mapper:
    """Holds the map of one epoch, in the session's map world (optical axes) and model units.

    On output a Sim(3) `world` moves it: the scale to metres, and the turn to other world axes.

    Only kept frames (keyframes) put points into the map; every frame that was handed out has a
    pose in the trajectory. A pending frame waits for its decision. When a result of a later epoch
    arrives the map starts anew; results of an earlier one are ignored.

    The map keeps all segments of an epoch together. They are not related by any measurement, so
    `segments` tells how many there are.
    """

    def __init__(self, options: MapperOptions):
        self.options = options
        self.voxel_map = VoxelMap(options.voxel_size, options.max_points)
        self._epoch = 0
        self.clear()

    def set_options(self, options: MapperOptions) -> None:
        """Go on with other options; voxel size and limit of the map are those it began with."""
        self.options = options
        self.trajectory.limit_path(options.path_max_length)

    def clear(self) -> None:
        """Forget map, trajectory and pending frames."""
        self.voxel_map.clear()
        self.trajectory = Trajectory(self.options.path_max_length)
        self._cameras = ThinningLog(12 + 4 + 2, _MAX_CAMERAS)
        self._pending: dict[int, FrameResult] = {}
        self._segment: int | None = None
        self._seen: list[NDArray[np.float32]] | None = []
        """Confidences of the first keyframes; None once they are judged."""
        self.complaint = ""
        """Why the map stays nearly empty; empty if it does not."""
        self.segments = 0
        """Number of map segments that have a kept frame."""

    def add(self, result: FrameResult) -> None:
        """Take a frame in; a pending one is held until `decide`."""
        if result.epoch < self._epoch:
            return
        if result.epoch > self._epoch:
            self._epoch = result.epoch
            self.clear()
        if result.pending:
            self._pending[result.index] = result
        else:
            self._settle(result, result.keyframe)

    def decide(self, index: int, kept: bool) -> None:
        """Settle the pending frame `index`; a dropped one leaves its pose in the trajectory.

        A frame that is not pending here, for example from before a `clear`, is ignored.
        """
        result = self._pending.pop(index, None)
        if result is not None:
            self._settle(result, kept)

    def points(self, world: Sim3 = IDENTITY) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Positions [N, 3], moved by `world`, and colours [N, 3] of the map."""
        xyz, rgb = self.voxel_map.points()
        if world is not IDENTITY:
            xyz = xyz @ np.float32(world.scale * world.R.T) + np.float32(world.t)
        return xyz, rgb

    def cameras(self, world: Sim3 = IDENTITY) -> list[CameraView]:
        """Poses and pinholes of the kept frames (at most 20,000, evenly thinned)."""
        views = []
        for stamp, row in zip(*self._cameras.rows(), strict=True):
            T, K = np.eye(4), np.eye(3)
            T[:3] = row[:12].reshape(3, 4)
            K[0, 0], K[1, 1], K[0, 2], K[1, 2] = row[12:16]
            views.append(
                CameraView(int(stamp), world.apply_pose(T), K, (int(row[16]), int(row[17])))
            )
        return views

    def write_map(self, path: Path, world: Sim3 = IDENTITY) -> int:
        """Write the map as PLY and return the number of points; ExportError if it fails."""
        return write_ply(path, *self.points(world))

    def _settle(self, result: FrameResult, kept: bool) -> None:
        self.trajectory.add(result.index, result.stamp_ns, result.pose_map, kept)
        if not kept:
            return
        if result.segment != self._segment:
            self._segment = result.segment
            self.segments += 1
        K, size = result.intrinsics, result.image.shape[:2]
        row = (*result.pose_map[:3].ravel(), K[0, 0], K[1, 1], K[0, 2], K[1, 2], *size)
        self._cameras.add(result.stamp_ns, np.array(row))
        points, colors, confidence = confident_points(
            result, self.options.stride, self.options.confidence_min
        )
        self._watch_confidence(result)
        self.voxel_map.integrate(transform_points(result.pose_map, points), colors, confidence)

    def _watch_confidence(self, result: FrameResult) -> None:
        """Say once, after the first keyframes with depth, why a map stays nearly empty."""
        if result.depth is None or result.confidence is None or self._seen is None:
            return
        # 0 lets everything through that has a place
        self._seen.append(confident_points(result, self.options.stride, 0.0)[2])
        if len(self._seen) < _JUDGED_AFTER:
            return
        confidence, limit = np.concatenate(self._seen), self.options.confidence_min
        self._seen = None
        share = float(np.mean(confidence >= limit)) if len(confidence) else 1.0
        if share < _SPARSE:
            # rounded down, so that what has exactly this confidence stays
            better = math.floor(1000 * np.quantile(confidence, 1 - _WORTH_KEEPING)) / 1000
            self.complaint = (
                f"only {100 * share:.1f}% of the depth reaches depth_confidence_min {limit:g}, so "
                f"the map stays nearly empty: depth_confidence_min {better:.3f} would keep "
                f"{100 * np.mean(confidence >= better):.0f}% of it, 1.0 all"
            )
            logger.warning(self.complaint)
