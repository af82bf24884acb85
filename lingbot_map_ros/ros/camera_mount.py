# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where the camera sits on the robot: from TF, else the parameter, else an assumption."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from lingbot_map_ros.ros.frames import BODY_FROM_OPTICAL, Matrix, parse_base_to_camera
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.tf_lookup import TransformLookup
from lingbot_map_ros.wording import shortened

logger = logging.getLogger(__name__)

NAMELESS = "camera_optical_frame"
"""Frame of a camera whose images name none."""
NOTICEABLE_M = 0.01
"""Metres from the base to the camera that poses in another unit get wrong."""


class CameraMount:
    """Pose of the camera's optical frame in the base.

    Parameters
    ----------
    parameters, lookup
        Frame names and ``base_to_camera``; TF.
    announce
        Called with a pose that TF does not have and the camera's frame, once; not for a camera
        that somebody else is known to move.
    """

    def __init__(
        self,
        parameters: Parameters,
        lookup: TransformLookup,
        announce: Callable[[Matrix, str], None],
    ) -> None:
        self._base_frame = parameters.base_frame
        self._camera_frame = parameters.camera_frame
        self._lookup = lookup
        self._announce = announce
        given = parse_base_to_camera(parameters.base_to_camera)
        self._given = given is not None
        self._fallback = BODY_FROM_OPTICAL if given is None else given
        self._announced = ""
        self._moving_said = self._units_said = False

    def frame(self, image_frame: str) -> str:
        """Name of the camera's optical frame, for images that name ``image_frame``."""
        return self._camera_frame or image_frame.lstrip("/") or NAMELESS

    def base_from_camera(self, camera_frame: str, stamp_ns: int) -> Matrix:
        """Pose [4, 4] of the optical frame in the base at the stamp, in metres."""
        moving = self._lookup.unseen(self._base_frame, camera_frame)
        if moving and not self._moving_said:
            self._moving_said = True
            logger.warning(
                "between %r and the camera %r the frame %r moves by /tf; only tf2_ros would follow "
                "it, and it is not installed: the camera is taken to be fixed",
                *map(shortened, (self._base_frame, camera_frame, moving)),
            )
        for at in (stamp_ns, 0):
            pose = self._lookup.lookup(self._base_frame, camera_frame, at)
            if pose is not None:
                return pose
        if self._announced != camera_frame and not moving:
            self._announced = camera_frame
            if not self._given:
                logger.warning(
                    "TF has no transform from %r to the camera %r and base_to_camera is not "
                    "set: the camera is taken to look along x of the base, at its origin",
                    self._base_frame,
                    shortened(camera_frame),
                )
            self._announce(self._fallback, camera_frame)
        return self._fallback

    def warn_of_units(self, base_from_camera: Matrix, camera_frame: str, scale_source: str) -> None:
        """Warn, once, that a pose [4, 4] in metres goes with poses in model units."""
        distance = float(np.linalg.norm(base_from_camera[:3, 3]))
        if self._units_said or distance <= NOTICEABLE_M:
            return
        self._units_said = True
        way_on = "Set scale_source (fixed or odometry)"
        if scale_source == "odometry":
            way_on = "Wait until the odometry has settled the scale"
        logger.warning(
            "the camera sits %.2f m from %r and the scale is unknown: these metres are taken for "
            "model units, which makes positions of %r wrong where it turns. %s, or set base_frame: "
            "%s for the poses of the camera itself",
            *(distance, self._base_frame, self._base_frame, way_on, shortened(camera_frame)),
        )
