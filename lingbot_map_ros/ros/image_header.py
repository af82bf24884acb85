# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the header of a compressed image promises."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from lingbot_map_ros.errors import PILLOW_ERRORS, InputError

MAX_PIXELS = 1 << 26
"""Pixels of a compressed image beyond which its header is not believed: more than any camera has.

A few hundred kilobytes may unpack to gigabytes.
"""


def check_pixels(data: np.ndarray) -> None:
    """Refuse an image file, uint8 [N], by its header, before anything is unpacked.

    Raises InputError for one of more than MAX_PIXELS; a header that cannot be read is not judged.
    """
    try:
        with Image.open(io.BytesIO(data.tobytes())) as file:
            width, height = file.size
    except Image.DecompressionBombError as error:
        raise InputError(f"the compressed image is too large: {error}") from error
    # what Pillow cannot read, OpenCV may, or says why not
    except PILLOW_ERRORS:
        return
    if width * height > MAX_PIXELS:
        raise InputError(f"a compressed image of {width}x{height} pixels is too large")
