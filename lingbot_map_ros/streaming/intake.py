# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a stream takes in: an image and its stamp, checked and prepared for the network."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.errors import InputError
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.streaming.camera_model import CameraModel
from lingbot_map_ros.streaming.guard import contrast
from lingbot_map_ros.streaming.image_files import require_rgb
from lingbot_map_ros.streaming.observation import Frame
from lingbot_map_ros.streaming.preprocessing import Preprocessor


class Intake:
    """Makes frames for a network, where it runs.

    What was prepared for one size and calibration is kept for as long as both stay.
    """

    def __init__(self, model: GCTStream) -> None:
        self._model = model
        self._preprocessor: Preprocessor | None = None
        self._made_for: tuple[tuple[int, ...], CameraModel | None] = ((), None)

    def frame(
        self,
        image: NDArray[np.uint8],
        stamp_ns: int,
        index: int,
        size: tuple[int, ...],
        camera: CameraModel | None,
    ) -> Frame:
        """Prepare frame ``index`` of a stream whose images have the shape ``size``, if not empty.

        Raises InputError for anything but uint8 RGB ``[H, W, 3]`` of that shape and an integer.
        """
        if not isinstance(stamp_ns, int | np.integer):
            raise InputError(
                f"stamp_ns must be an integer, in nanoseconds, not {type(stamp_ns).__name__}"
            )
        require_rgb(image)
        if size and image.shape != size:
            raise InputError(
                f"the image size changed from {size[1]}x{size[0]} to {image.shape[1]}x"
                f"{image.shape[0]} in mid-stream; reset the session first"
            )
        preprocessor = self._preprocessor_for(image.shape, camera)
        return Frame(index, stamp_ns, preprocessor(image), contrast(image), preprocessor.intrinsics)

    def _preprocessor_for(self, shape: tuple[int, ...], camera: CameraModel | None) -> Preprocessor:
        if self._preprocessor is None or self._made_for != (shape, camera):
            self._preprocessor = Preprocessor(
                shape[0], shape[1], self._model.config, self._model.device, camera=camera
            )
            self._made_for = (shape, camera)
        return self._preprocessor
