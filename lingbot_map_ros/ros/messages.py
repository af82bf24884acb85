# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays to sensor messages, filled by the one way that is fast with every rclpy.

An ``array.array`` is taken over as it is; bytes, lists and numpy arrays are checked element by
element by some versions, which takes seconds for a cloud.
"""

from __future__ import annotations

import array
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.errors import InputError

_ENCODINGS = {
    "rgb8": (np.uint8, 3),
    "bgr8": (np.uint8, 3),
    "mono8": (np.uint8, 1),
    "16UC1": (np.uint16, 1),
    "32FC1": (np.float32, 1),
}
_BIG_ENDIAN = sys.byteorder == "big"


def image_message(pixels: NDArray, encoding: str, header: Any) -> Any:
    """``sensor_msgs/Image`` of pixels [H, W] or [H, W, 3] whose type fits the encoding.

    Raises InputError where it does not.
    """
    from sensor_msgs.msg import Image

    dtype, channels = _ENCODINGS.get(encoding, (None, 0))
    shape = pixels.shape[2:] or (1,)
    if dtype is None or pixels.dtype != dtype or shape != (channels,):
        raise InputError(f"pixels {pixels.dtype} {pixels.shape} do not make a {encoding} image")
    height, width = pixels.shape[:2]
    message = Image(header=header, height=height, width=width, encoding=encoding)
    message.is_bigendian = int(_BIG_ENDIAN)
    message.step = width * channels * pixels.itemsize
    message.data = _bytes(pixels)
    return message


def depth_message(
    depth: NDArray[np.float32], header: Any, scale: float = 1.0, valid: NDArray | None = None
) -> Any:
    """32FC1 ``sensor_msgs/Image`` by REP-118: depth [H, W] times scale, NaN where invalid.

    Pixels that are not positive and finite are invalid, and those where ``valid`` [H, W] is False.
    """
    known = np.isfinite(depth) & (depth > 0)
    if valid is not None:
        known &= valid
    metres = np.where(known, depth * np.float32(scale), np.float32(np.nan))
    return image_message(metres.astype(np.float32, copy=False), "32FC1", header)


def camera_info_message(K: NDArray, height: int, width: int, header: Any) -> Any:
    """``sensor_msgs/CameraInfo`` of undistorted images of height x width with the matrix K."""
    from sensor_msgs.msg import CameraInfo

    message = CameraInfo(header=header, height=height, width=width)
    message.distortion_model = "plumb_bob"
    message.d = [0.0] * 5
    message.k = [float(value) for value in K.reshape(-1)]
    message.r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    message.p = [float(value) for row in K for value in (*row, 0.0)]
    return message


def point_cloud_message(xyz: NDArray[np.float32], rgb: NDArray[np.uint8], header: Any) -> Any:
    """``sensor_msgs/PointCloud2`` of points [N, 3] with colours [N, 3], 16 bytes a point.

    The colour is packed as RViz and PCL expect it: 0x00RRGGBB in a field ``rgb`` of type float32.
    Raises InputError when the two do not fit together.
    """
    from sensor_msgs.msg import PointCloud2, PointField

    if xyz.ndim != 2 or xyz.shape[1] != 3 or rgb.shape != xyz.shape:
        raise InputError(f"points {xyz.shape} and colours {rgb.shape} do not make a cloud")
    count = len(xyz)
    cloud = np.empty((count, 4), np.float32)
    cloud[:, :3] = xyz
    # Packed as integers: a float in between could quieten patterns that happen to be a NaN.
    colours = cloud.view(np.uint32)[:, 3]
    np.left_shift(rgb[:, 0], 16, out=colours, dtype=np.uint32)
    colours |= np.left_shift(rgb[:, 1], 8, dtype=np.uint32)
    colours |= rgb[:, 2]
    message = PointCloud2(header=header, height=1, width=count)
    message.fields = [
        PointField(name=name, offset=4 * index, datatype=PointField.FLOAT32, count=1)
        for index, name in enumerate(("x", "y", "z", "rgb"))
    ]
    message.is_bigendian = _BIG_ENDIAN
    message.point_step = 16
    message.row_step = 16 * count
    message.is_dense = bool(np.isfinite(cloud[:, :3]).all())
    message.data = _bytes(cloud)
    return message


def _bytes(values: NDArray) -> array.array:
    data = array.array("B")
    data.frombytes(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return data
