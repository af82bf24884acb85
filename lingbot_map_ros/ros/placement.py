# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where a frame goes: from the model's poses to those of the base in ``map`` and ``odom``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.geometry.poses import make_pose
from lingbot_map_ros.ros.frames import Axes, Matrix, PoseError, base_pose, map_from_odom
from lingbot_map_ros.streaming.results import FrameResult


@dataclass(frozen=True, eq=False)
class PlacedFrame:
    """A result with its poses in ROS worlds (metres, or model units while those are unknown)."""

    result: FrameResult
    camera_frame: str
    scale: float
    """What ``result.depth`` is multiplied by."""
    map_from_base: Matrix
    odom_from_base: Matrix

    @property
    def map_from_odom(self) -> Matrix:
        """Pose [4, 4] of ``odom`` in ``map``."""
        return map_from_odom(self.map_from_base, self.odom_from_base)


class Placement:
    """Keeps the axes of the present epoch, and the odometry continuous when the scale changes.

    A new scale stretches the map about its origin. The odometry goes on from where it is, in the
    new scale: the difference is a correction, and belongs to ``map`` -> ``odom``.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start over: the next frame is the first of a map."""
        self.metric = False
        """Whether lengths that come out are metres."""
        self._axes: Axes | None = None
        self._scale = 1.0
        self._offset: NDArray[np.float64] = np.zeros(3)
        self._last: NDArray[np.float64] = np.zeros(3)

    @property
    def axes(self) -> Axes | None:
        """Axes of the map in the present scale; None before the first frame."""
        return self._axes

    def set_scale(self, scale: float, metric: bool) -> bool:
        """Use another scale from the next frame on; whether it is another.

        ``metric`` tells whether it gives metres.
        """
        self.metric = metric
        if scale == self._scale:
            return False
        if self._axes is not None:
            self._offset = self._offset + (self._scale - scale) * self._last
            self._axes = replace(self._axes, scale=scale)
        self._scale = scale
        return True

    def place(
        self,
        result: FrameResult,
        base_from_camera: Matrix,
        camera_frame: str,
    ) -> PlacedFrame:
        """Place a result; PoseError (an InputError) for one whose pose is not rigid."""
        if self._axes is None:
            self._axes = Axes.of_first_pose(result.pose_odom, self._scale)
        odom = self._axes.camera_pose(result.pose_odom)
        self._last = odom[:3, 3] / self._scale
        odom = make_pose(odom[:3, :3], odom[:3, 3] + self._offset)
        return PlacedFrame(
            result=result,
            camera_frame=camera_frame,
            scale=self._scale,
            map_from_base=self.map_from_base(result, base_from_camera),
            odom_from_base=base_pose(odom, base_from_camera),
        )

    def map_from_base(self, result: FrameResult, base_from_camera: Matrix) -> Matrix:
        """Pose [4, 4] of the base in the map, in the present scale, of a frame placed before."""
        if self._axes is None:
            raise PoseError("no frame of this map was placed yet")
        return base_pose(self._axes.camera_pose(result.pose_map), base_from_camera)
