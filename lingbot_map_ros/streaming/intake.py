# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Images on their way into a stream: checked, prepared for the network, numbered."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from lingbot_map_ros.errors import InputError
from lingbot_map_ros.streaming.camera_model import CameraModel
from lingbot_map_ros.streaming.frame import Frame, contrast
from lingbot_map_ros.streaming.image_files import require_rgb
from lingbot_map_ros.streaming.preprocessing import InputSize, Preprocessor


class Intake:
    """Makes frames of images, with a preprocessor for the size and the calibration at hand."""

    def __init__(self, config: InputSize, device: torch.device) -> None:
        self._config = config
        self._device = device
        self._preprocessor: Preprocessor | None = None
        self._made_for: tuple[tuple[int, ...], CameraModel | None] = ((), None)

    def frame(
        self,
        image: NDArray[np.uint8],
        camera: CameraModel | None,
        size: tuple[int, ...],
        *,
        index: int,
        stamp_ns: int,
    ) -> Frame:
        """Prepare an image, uint8 RGB ``[H, W, 3]``, of a stream whose images have this shape.

        Raises
        ------
        InputError
            Not such an image, or another ``size``, where that is not empty; a stamp that is no
            integer.

        """
        if not isinstance(stamp_ns, int | np.integer):
            raise InputError(
                f"stamp_ns must be an integer, in nanoseconds, not {type(stamp_ns).__name__}"
            )
        if not -(2**63) <= stamp_ns < 2**63:
            raise InputError(f"stamp_ns {stamp_ns} does not fit 64 bits")
        require_rgb(image)
        if size and image.shape != size:
            raise InputError(
                f"the image size changed from {size[1]}x{size[0]} to {image.shape[1]}x"
                f"{image.shape[0]} in mid-stream; reset the session first"
            )
        preprocessor = self._preprocessor_for(image.shape, camera)
        tensor = preprocessor(image)
        return Frame(index, stamp_ns, tensor, contrast(image), preprocessor.intrinsics)

    def _preprocessor_for(self, shape: tuple[int, ...], camera: CameraModel | None) -> Preprocessor:
        made_for = (shape, camera)
        if self._preprocessor is None or self._made_for != made_for:
            height, width = shape[:2]
            self._preprocessor = Preprocessor(
                height, width, self._config, self._device, camera=camera
            )
            self._made_for = made_for
        return self._preprocessor
