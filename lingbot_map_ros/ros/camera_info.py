# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``sensor_msgs/CameraInfo``, duck-typed, to the calibration of the images that come with it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lingbot_map_ros.streaming.camera_model import CameraModel, CameraModelError

SMALLEST_SIDE = 14
"""Pixels of a side of a patch: the network takes no image with a side below that."""


def camera_model(msg: Any, height: int, width: int) -> CameraModel:
    """Calibration of images of height x width, from K, D, binning and region of interest.

    K and D are used and R and P are not: the images are taken to be raw. (Rectified images often
    come with the same message, distortion included; they want ``use_camera_info: false``.) Equal
    messages give the same object, so that it can be compared by identity.

    Raises CameraModelError for NaN, zeros (an uncalibrated camera), an unknown distortion model,
    or a message that is about images of another size.
    """
    return _camera_model(
        _geometry(msg),
        # The names are upper case in ROS 1 bags.
        tuple(float(k) for k in (msg.k if hasattr(msg, "k") else msg.K)),
        tuple(float(d) for d in (msg.d if hasattr(msg, "d") else msg.D)),
        str(msg.distortion_model),
        (width, height),
    )


def image_size(msg: Any) -> tuple[int, int] | None:
    """Height and width of the images that a message is about; None where it does not tell.

    A size that no image may have is a placeholder.
    """
    width, height = _geometry(msg).image
    return (height, width) if min(height, width) >= SMALLEST_SIDE else None


class _Geometry(NamedTuple):
    """The part of a sensor that an image shows."""

    sensor: tuple[int, int]
    """Width and height, as everything here."""
    binning: tuple[int, int]
    corner: tuple[int, int]
    region: tuple[int, int]

    @property
    def image(self) -> tuple[int, int]:
        return self.region[0] // self.binning[0], self.region[1] // self.binning[1]


def _geometry(msg: Any) -> _Geometry:
    roi, sensor = msg.roi, (int(msg.width), int(msg.height))
    return _Geometry(
        sensor,
        (int(msg.binning_x) or 1, int(msg.binning_y) or 1),
        (int(roi.x_offset), int(roi.y_offset)),
        # All zero stands for the whole sensor.
        (int(roi.width) or sensor[0], int(roi.height) or sensor[1]),
    )


@lru_cache(maxsize=8)
def _camera_model(
    geometry: _Geometry,
    k: tuple[float, ...],
    d: tuple[float, ...],
    model: str,
    image: tuple[int, int],
) -> CameraModel:
    if len(k) != 9:
        raise CameraModelError(f"K must have 9 numbers, not {len(k)}")
    sensor, binning, (x, y), region = geometry
    if x + region[0] > sensor[0] or y + region[1] > sensor[1]:
        raise CameraModelError(
            f"the region of interest {(x, y, *region)} is not within {sensor} pixels"
        )
    size = geometry.image
    if size != image:
        raise CameraModelError(
            f"the calibration is for images of {size[0]}x{size[1]} pixels, "
            f"the images have {image[0]}x{image[1]}"
        )
    K = np.array(k, np.float64).reshape(3, 3)
    K[:2, 2] -= (x, y)
    K[:2] /= np.array(binning, np.float64)[:, None]
    return CameraModel(*size, K, d, model)
