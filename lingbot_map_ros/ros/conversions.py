# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Camera messages to RGB arrays.

Messages are duck-typed: those of rclpy and those of rosbags both fit, and neither is imported.
The encodings of the table below never pass through ``cv_bridge``, so that the result does not
depend on which of its variants is installed; encodings beyond the table go to ROS 2's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np

from lingbot_map_ros.errors import InputError
from lingbot_map_ros.ros import cv_bridge_variant
from lingbot_map_ros.ros.image_header import check_pixels
from lingbot_map_ros.ros.intensity_window import IntensityWindow
from lingbot_map_ros.wording import shortened


class UnsupportedEncodingError(InputError):
    """An image encoding that neither this package nor an installed cv_bridge can read."""


class _Layout(NamedTuple):
    """How an encoding lies in memory and how it becomes RGB."""

    channels: int
    depth: int
    to_rgb: Callable[[np.ndarray], np.ndarray]
    # Semi-planar formats carry half as many rows again below the picture.
    rows: Callable[[int], int] = int


def _cvt(code: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda image: cv2.cvtColor(image, code)


def _high_byte(convert: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda image: convert((image >> 8).astype(np.uint8))


def _same(image: np.ndarray) -> np.ndarray:
    return image


def _packed_422(code: int) -> Callable[[np.ndarray], np.ndarray]:
    def convert(image: np.ndarray) -> np.ndarray:
        if image.shape[1] % 2:
            raise InputError(f"a 4:2:2 image needs an even width, not {image.shape[1]}")
        return cv2.cvtColor(image, code)

    return convert


def _semi_planar(code: int) -> Callable[[np.ndarray], np.ndarray]:
    def convert(image: np.ndarray) -> np.ndarray:
        if image.shape[0] % 3 or image.shape[1] % 2:
            raise InputError("a 4:2:0 image needs an even width and height")
        return cv2.cvtColor(image, code)

    return convert


def _half_as_many_again(height: int) -> int:
    return height + height // 2 if height % 2 == 0 else height


_GRAY = _cvt(cv2.COLOR_GRAY2RGB)
_BGR = _cvt(cv2.COLOR_BGR2RGB)
_BGRA = _cvt(cv2.COLOR_BGRA2RGB)
_RGBA = _cvt(cv2.COLOR_RGBA2RGB)
# OpenCV names a Bayer pattern after its second row and column, ROS after its first.
_BAYER = {
    "rggb": _cvt(cv2.COLOR_BayerBG2RGB),
    "bggr": _cvt(cv2.COLOR_BayerRG2RGB),
    "gbrg": _cvt(cv2.COLOR_BayerGR2RGB),
    "grbg": _cvt(cv2.COLOR_BayerGB2RGB),
}
_UYVY = _Layout(2, 1, _packed_422(cv2.COLOR_YUV2RGB_UYVY))
_YUYV = _Layout(2, 1, _packed_422(cv2.COLOR_YUV2RGB_YUY2))

# Keys are lower case. OpenCV's own type names carry no colour; what ROS nodes put there is BGR.
_LAYOUTS: dict[str, _Layout] = {
    "rgb8": _Layout(3, 1, _same),
    "bgr8": _Layout(3, 1, _BGR),
    "rgba8": _Layout(4, 1, _RGBA),
    "bgra8": _Layout(4, 1, _BGRA),
    "mono8": _Layout(1, 1, _GRAY),
    "8uc1": _Layout(1, 1, _GRAY),
    "8uc3": _Layout(3, 1, _BGR),
    "8uc4": _Layout(4, 1, _BGRA),
    "rgb16": _Layout(3, 2, _high_byte(_same)),
    "bgr16": _Layout(3, 2, _high_byte(_BGR)),
    "rgba16": _Layout(4, 2, _high_byte(_RGBA)),
    "bgra16": _Layout(4, 2, _high_byte(_BGRA)),
    "mono16": _Layout(1, 2, _high_byte(_GRAY)),
    "16uc1": _Layout(1, 2, _GRAY),
    **{f"bayer_{name}8": _Layout(1, 1, convert) for name, convert in _BAYER.items()},
    **{f"bayer_{name}16": _Layout(1, 2, _high_byte(convert)) for name, convert in _BAYER.items()},
    "yuv422": _UYVY,
    "uyvy": _UYVY,
    "yuv422_yuy2": _YUYV,
    "yuyv": _YUYV,
    "nv12": _Layout(1, 1, _semi_planar(cv2.COLOR_YUV2RGB_NV12), _half_as_many_again),
    "nv21": _Layout(1, 1, _semi_planar(cv2.COLOR_YUV2RGB_NV21), _half_as_many_again),
}

SUPPORTED_ENCODINGS = tuple(
    name.upper() if name[0].isdigit() else name for name in sorted(_LAYOUTS)
)


def image_to_rgb(msg: Any, window: IntensityWindow | None = None) -> np.ndarray:
    """Convert a ``sensor_msgs/Image`` to RGB.

    Parameters
    ----------
    msg
        The message. ``step`` (row padding) and ``is_bigendian`` are honoured. 16-bit colour, Bayer
        and ``mono16`` are full-range by definition and keep their high byte.
    window
        How the counts of ``16UC1`` become gray: give one window per stream, so that brightness
        does not flicker. Without one, the image's own range is used.

    Returns
    -------
    numpy.ndarray
        uint8 [H, W, 3]. For ``rgb8`` it is a view of the message's data (read-only where that is).

    Raises
    ------
    UnsupportedEncodingError
        The encoding is unknown; the text lists the known ones.
    InputError
        Size, step and data do not fit together.

    """
    encoding = str(msg.encoding)
    layout = _LAYOUTS.get(encoding.lower())
    if layout is None:
        rgb = cv_bridge_variant.to_rgb(msg)
        if rgb is None:
            raise UnsupportedEncodingError(
                f"image encoding {shortened(encoding)!r} is not supported; publish one of "
                + ", ".join(SUPPORTED_ENCODINGS)
            )
        return rgb
    return _to_rgb(_view(msg, layout), encoding.lower(), window)


def compressed_to_rgb(msg: Any, window: IntensityWindow | None = None) -> np.ndarray:
    """Decode a ``sensor_msgs/CompressedImage`` (JPEG, PNG, ...) to RGB.

    A single-channel image whose ``format`` names a Bayer or 16UC1 source is treated as that.
    Returns uint8 [H, W, 3]; raises InputError for data that is empty, damaged or cut short, and for
    an image of more than MAX_PIXELS.
    """
    data = _buffer(msg.data)
    # libjpeg fills what is missing of a cut file with gray and calls it a success.
    if data[:2].tobytes() == b"\xff\xd8" and b"\xff\xd9" not in data[data.size // 2 :].tobytes():
        raise InputError(f"the compressed image ({data.size} B) is cut short")
    check_pixels(data)
    try:
        image = cv2.imdecode(data, cv2.IMREAD_UNCHANGED) if data.size else None
    except cv2.error as error:
        raise InputError(f"the compressed image cannot be decoded: {error}") from error
    if image is None:
        raise InputError(
            f"the compressed image ({data.size} B, format {shortened(msg.format)!r}) cannot be "
            "decoded"
        )
    if image.dtype not in (np.uint8, np.uint16):
        raise InputError(f"a compressed image of type {image.dtype} is not supported")
    wide = image.dtype == np.uint16
    if image.ndim == 3 and image.shape[2] not in (1, 3, 4):
        raise InputError(f"a compressed image of {image.shape[2]} channels is not supported")
    if image.ndim == 3 and image.shape[2] > 1:
        encoding = ("bgr" if image.shape[2] == 3 else "bgra") + ("16" if wide else "8")
    else:
        image = image.reshape(image.shape[:2])
        source = str(msg.format).split(";")[0].strip().lower()
        layout = _LAYOUTS.get(source)
        one_channel = layout is not None and layout.channels == 1 and layout.rows is int
        if not one_channel or layout is None or layout.depth != image.itemsize:
            source = "mono16" if wide else "mono8"
        encoding = source
    return _to_rgb(image, encoding, window)


def _buffer(data: Any) -> np.ndarray:
    """Bytes of a message field as uint8 [N], without a copy where it has a buffer."""
    try:
        return np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise InputError(f"the data of the image cannot be read: {error}") from error


def _view(msg: Any, layout: _Layout) -> np.ndarray:
    """View of the pixels: [rows, W] or [rows, W, channels], row padding skipped."""
    height, width, step = int(msg.height), int(msg.width), int(msg.step)
    if height <= 0 or width <= 0:
        raise InputError(f"an image of {width}x{height} pixels is empty")
    row = width * layout.channels * layout.depth
    rows = layout.rows(height)
    data = _buffer(msg.data)
    if step < row:
        raise InputError(
            f"step {step} is less than a row of {row} bytes ({msg.encoding}, width {width})"
        )
    needed = step * (rows - 1) + row
    if data.size < needed:
        raise InputError(
            f"the data has {data.size} B, but {needed} belong to {width}x{height} {msg.encoding} "
            f"with step {step}"
        )
    shape: tuple[int, ...] = (rows, width)
    strides: tuple[int, ...] = (step, layout.channels * layout.depth)
    if layout.channels > 1:
        shape, strides = (*shape, layout.channels), (*strides, layout.depth)
    order = ">" if msg.is_bigendian else "<"
    return np.ndarray(shape, np.dtype(f"{order}u{layout.depth}"), data, 0, strides)


def _to_rgb(image: np.ndarray, encoding: str, window: IntensityWindow | None) -> np.ndarray:
    if encoding == "16uc1":
        image = (window or IntensityWindow()).apply(image)
    try:
        return _LAYOUTS[encoding].to_rgb(image)
    except cv2.error as error:
        raise InputError(
            f"a {encoding} image of shape {image.shape} is invalid: {error}"
        ) from error
