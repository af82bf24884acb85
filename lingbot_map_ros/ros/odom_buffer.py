# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Somebody's odometry, interpolated at the stamps of images."""

from __future__ import annotations

import bisect
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.geometry.poses import (
    make_pose,
    matrix_to_quaternion,
    quaternion_to_matrix,
)
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.wording import shortened

KEEP = 2000
"""Messages that are kept: 20 s of a 100 Hz odometry."""
MAX_GAP_NS = 500_000_000
"""Neighbours further apart than this are not interpolated."""


class OdomBuffer:
    """Poses of the base in the odometry's world, by stamp. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamps: list[int] = []
        self._poses: list[NDArray[np.float64]] = []

    def add(self, msg: Any) -> bool:
        """Store a ``nav_msgs/Odometry``; False for one that is no pose (NaN, no quaternion)."""
        p, q = msg.pose.pose.position, msg.pose.pose.orientation
        pose = make_pose(quaternion_to_matrix(np.array([q.x, q.y, q.z, q.w])), [p.x, p.y, p.z])
        if not np.isfinite(pose).all():
            return False
        stamp = msg.header.stamp.sec * 1_000_000_000 + msg.header.stamp.nanosec
        with self._lock:
            if self._stamps and stamp <= self._stamps[-1]:
                at = bisect.bisect_left(self._stamps, stamp)
                if self._stamps[at] == stamp:
                    return True
                self._stamps.insert(at, stamp)
                self._poses.insert(at, pose)
            else:
                self._stamps.append(stamp)
                self._poses.append(pose)
            if len(self._stamps) > KEEP:
                del self._stamps[: KEEP // 4], self._poses[: KEEP // 4]
        return True

    def at(self, stamp_ns: int) -> NDArray[np.float64] | None:
        """Pose [4, 4] at the stamp, interpolated between its neighbours; None without both."""
        with self._lock:
            at = bisect.bisect_left(self._stamps, stamp_ns)
            if at < len(self._stamps) and self._stamps[at] == stamp_ns:
                return self._poses[at]
            if at == 0 or at == len(self._stamps):
                return None
            before, after = self._stamps[at - 1], self._stamps[at]
            first, second = self._poses[at - 1], self._poses[at]
        if after - before > MAX_GAP_NS:
            return None
        return _interpolate(first, second, (stamp_ns - before) / (after - before))

    @property
    def newest(self) -> int | None:
        """Stamp of the newest message; None before the first."""
        with self._lock:
            return self._stamps[-1] if self._stamps else None

    def clear(self) -> None:
        """Forget all: time went backwards."""
        with self._lock:
            self._stamps.clear()
            self._poses.clear()


def odom_complaints(msg: Any, parameters: Parameters) -> list[str]:
    """Say in which way an odometry is not that of the parameters' frames; its poses are used."""
    if parameters.scale_source != "odometry" and parameters.tf_mode != "map":
        return []  # nobody uses them
    child, world = msg.child_frame_id.strip("/"), msg.header.frame_id.strip("/")
    complaints = []
    if child and child != parameters.base_frame:
        complaints.append(
            f"the odom topic holds poses of {shortened(child)!r}, which are taken for those of "
            f"base_frame '{parameters.base_frame}': metres and transforms are right only if both "
            "are one; set base_frame, or remap odom"
        )
    if parameters.tf_mode == "map" and world and world != parameters.odom_frame:
        complaints.append(
            f"the odom topic's poses are in {shortened(world)!r} and not in odom_frame "
            f"'{parameters.odom_frame}': set odom_frame"
        )
    return complaints


def _interpolate(
    first: NDArray[np.float64], second: NDArray[np.float64], fraction: float
) -> NDArray[np.float64]:
    # neighbours are close, so the normalised mean of quaternions is as good as a slerp
    a, b = matrix_to_quaternion(first[:3, :3]), matrix_to_quaternion(second[:3, :3])
    b = b if float(a @ b) >= 0 else -b
    R = quaternion_to_matrix((1 - fraction) * a + fraction * b)
    return make_pose(R, (1 - fraction) * first[:3, 3] + fraction * second[:3, 3])
