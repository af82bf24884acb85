# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Images of 16 bits from a camera of 12 or fewer, which look black."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from lingbot_map_ros.errors import SourceError
from lingbot_map_ros.streaming.image_files import load_image

_EXAMINED = 8
_USUAL_BITS, _ALL_BITS = 12, 16
_DARK = 1 << (_USUAL_BITS - 8)
"""Largest level of a loaded image that needs a closer look."""


def narrow_range(files: Sequence[Path]) -> list[str]:
    """Note, if so, that the first files have 16 bits and use less than a sixteenth of the range."""
    largest = 0
    for file in files[:_EXAMINED]:
        try:
            if load_image(file).max() > _DARK:
                return []
        except SourceError:
            continue  # said when it is its turn
        values = cv2.imread(str(file), cv2.IMREAD_UNCHANGED)
        if values is None or values.dtype != np.uint16:
            return []
        colours = values if values.ndim == 2 else values[..., :3]
        largest = max(largest, int(colours.max()))
    if not 0 < largest < 1 << _USUAL_BITS:
        return []
    factor = 1 << (_ALL_BITS - largest.bit_length())
    return [
        f"the images have 16 bits and the largest value of the first ones is {largest} of 65535: "
        f"they are nearly black to the network; multiply the values of all by {factor}"
    ]
