# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The only place where optical axes become those of REP-103.

The model speaks of cameras with optical axes (x right, y down, z forward), in a world of its own
and in units of its own. ROS worlds and bodies have x forward, y left, z up, and metres. The map's
origin is the first camera's optical centre, and its axes are that camera's turned to REP-103; a
camera that was tilted against gravity at the start tilts the map.

Matrices ``a_from_b`` [4, 4] take points of b to a, which is the pose of b in a.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.errors import ConfigurationError, InputError
from lingbot_map_ros.geometry.poses import (
    invert,
    make_pose,
    matrix_to_quaternion,
    quaternion_to_matrix,
)

Matrix = NDArray[np.float64]

BODY_FROM_OPTICAL: Matrix = np.array(
    [[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], np.float64
)
"""Pose of a forward-looking camera's optical frame in a body at the same place."""
BODY_FROM_OPTICAL.setflags(write=False)

_ORTHONORMAL = 1e-4
_UNIT = 0.01


class PoseError(InputError):
    """A matrix that is no rigid transform: not finite, scaled, sheared or mirrored."""


@dataclass(frozen=True)
class Axes:
    """From the model's world and units to a ROS world (map or odom) in metres.

    ``scale`` is metres per unit of the model. It multiplies positions and never enters a
    rotation, so that everything that comes out is rigid.
    """

    ros_from_model: Matrix
    """Rigid, in units of the model on both sides."""
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_rigid(self.ros_from_model)
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise PoseError(f"a scale must be positive, not {self.scale}")

    @classmethod
    def of_first_pose(cls, first: Matrix, scale: float = 1.0) -> Axes:
        """Axes of the map whose first camera has the pose ``first`` in the model's world."""
        require_rigid(first)
        return cls(BODY_FROM_OPTICAL @ invert(first), scale)

    def camera_pose(self, pose: Matrix) -> Matrix:
        """Pose of the camera's optical frame in the ROS world, from its pose for the model."""
        require_rigid(pose)
        return self._metric(self.ros_from_model @ pose)

    def points(self, xyz: NDArray) -> NDArray:
        """Points [N, 3] of the model's world in the ROS world; the type is kept."""
        R = (self.scale * self.ros_from_model[:3, :3]).astype(xyz.dtype)
        t = (self.scale * self.ros_from_model[:3, 3]).astype(xyz.dtype)
        return xyz @ R.T + t

    def map_from_odom(self, correction: Matrix) -> Matrix:
        """Pose of ``odom`` in ``map``, from the model's ``map_from_odom``."""
        require_rigid(correction)
        return self._metric(self.ros_from_model @ correction @ invert(self.ros_from_model))

    def _metric(self, T: Matrix) -> Matrix:
        return make_pose(T[:3, :3], T[:3, 3] * self.scale)


def base_pose(camera_pose: Matrix, base_from_camera: Matrix) -> Matrix:
    """Pose of the base in the world where the camera's optical frame has ``camera_pose``."""
    return camera_pose @ invert(base_from_camera)


def map_from_odom(map_from_base: Matrix, odom_from_base: Matrix) -> Matrix:
    """Pose of ``odom`` in ``map`` over somebody else's ``odom`` to ``base``."""
    require_rigid(odom_from_base)
    return map_from_base @ invert(odom_from_base)


def position_and_quaternion(T: Matrix) -> tuple[list[float], list[float]]:
    """Position x y z and unit quaternion x y z w (w >= 0) of a pose, as messages want them."""
    require_rigid(T)
    q = matrix_to_quaternion(T[:3, :3])
    return T[:3, 3].tolist(), (q / np.linalg.norm(q)).tolist()


def pose_matrix(position: Sequence[float], quaternion: Sequence[float]) -> Matrix:
    """Matrix of position x y z and quaternion x y z w of a message.

    Raises PoseError for numbers that are not finite and for a quaternion that is not of unit
    length within a hundredth (all zero is what an unset message holds).
    """
    t, q = np.array(position, np.float64), np.array(quaternion, np.float64)
    if t.shape != (3,) or q.shape != (4,) or not (np.isfinite(t).all() and np.isfinite(q).all()):
        raise PoseError(f"position {t.tolist()} and quaternion {q.tolist()} are not a pose")
    norm = float(np.linalg.norm(q))
    if abs(norm - 1.0) > _UNIT:
        raise PoseError(f"quaternion {q.tolist()} has length {norm:.4g} instead of 1")
    return make_pose(quaternion_to_matrix(q), t)


def parse_base_to_camera(values: Sequence[float]) -> Matrix | None:
    """Read the parameter ``base_to_camera``: x y z qx qy qz qw, or nothing (None).

    It is what TF would say of the camera's *optical* frame in the base frame, so that a
    forward-looking camera has the quaternion -0.5 0.5 -0.5 0.5. Raises ConfigurationError.
    """
    numbers = [float(value) for value in values]
    if not numbers:
        return None
    if len(numbers) != 7:
        raise ConfigurationError(
            f"base_to_camera needs 7 numbers (x y z qx qy qz qw) or none, not {len(numbers)}"
        )
    try:
        return pose_matrix(numbers[:3], numbers[3:])
    except PoseError as error:
        raise ConfigurationError(f"base_to_camera: {error}") from error


def require_rigid(T: Matrix) -> None:
    """Raise PoseError unless T [4, 4] is a rotation and a translation."""
    if T.shape != (4, 4) or not np.isfinite(T).all():
        raise PoseError("a pose is not finite, or no 4x4 matrix")
    R = T[:3, :3]
    if np.abs(R @ R.T - np.eye(3)).max() > _ORTHONORMAL or (T[3] != (0, 0, 0, 1)).any():
        raise PoseError("a pose is scaled or sheared")
    if np.linalg.det(R) < 0:
        raise PoseError("a pose is mirrored")
