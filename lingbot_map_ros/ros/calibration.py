# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The newest camera_info, put to use where it fits the images."""

from __future__ import annotations

import logging
from typing import Any

from lingbot_map_ros.ros.camera_info import camera_model
from lingbot_map_ros.streaming.camera_model import CameraModel, CameraModelError
from lingbot_map_ros.streaming.session import StreamingSession

logger = logging.getLogger(__name__)


class Calibration:
    """Gives the session its camera."""

    def __init__(self, session: StreamingSession) -> None:
        self._session = session
        self._for: tuple[CameraModel | None, int, int] | None = None
        self._refused = ""

    def use(self, camera_info: Any, height: int, width: int) -> None:
        """Calibrate images of height x width; a wrong calibration is warned about and not used."""
        camera = self._read(camera_info, height, width)
        if self._for is not None and self._for[0] is camera and self._for[1:] == (height, width):
            return
        self._for = (camera, height, width)
        self._session.camera = camera
        if camera is not None:
            lens = "no distortion" if camera.model == "none" else camera.model
            logger.info("camera_info is used (%s)", lens)

    def _read(self, camera_info: Any, height: int, width: int) -> CameraModel | None:
        if camera_info is None:
            return None
        try:
            return camera_model(camera_info, height, width)
        except CameraModelError as error:
            if str(error) != self._refused:
                self._refused = str(error)
                logger.warning("camera_info is not used: %s", error)
            return None
