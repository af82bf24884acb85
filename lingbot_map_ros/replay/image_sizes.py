# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One size for a folder of images: a stream is of one camera."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from lingbot_map_ros.errors import SourceError
from lingbot_map_ros.streaming.image_files import image_size
from lingbot_map_ros.wording import first_few

_TOLERANCE = 0.01
"""Difference of two aspects that the rounding of sides explains."""

Size = tuple[int, int]
"""Height and width."""


@dataclass(frozen=True)
class SortedOut:
    """Which files do not belong to the rest."""

    size: Size | None
    """That of most files; None where none can be read."""
    odd: tuple[Path, ...]
    """Files that show another view: their aspect is another one."""
    complaint: str
    """One sentence about them."""


def sort_out(files: Sequence[Path]) -> SortedOut:
    """Find the size that most files have, and those whose aspect is another; damaged ones stay."""
    sizes: dict[Path, Size] = {}
    for file in files:
        try:
            sizes[file] = image_size(file)
        except SourceError:
            continue  # said when it is its turn
    if not sizes:
        return SortedOut(None, (), "")
    ((usual, count),) = Counter(sizes.values()).most_common(1)
    odd = tuple(file for file, size in sizes.items() if not _same_aspect(size, usual))
    named = first_few([f"{file.name} ({_text(sizes[file])})" for file in odd])
    verb = "is" if len(odd) == 1 else "are"
    complaint = (
        f"{len(odd)} of {len(files)} images {verb} of another shape than the {count} of "
        f"{_text(usual)} pixels and {verb} left out: {named}"
    )
    return SortedOut(usual, odd, complaint)


def fitted(image: np.ndarray, size: Size | None) -> np.ndarray:
    """Bring uint8 [H, W, 3] of the same aspect, or very nearly, to ``size``; others stay."""
    if size is None or image.shape[:2] == size or not _same_aspect(image.shape[:2], size):
        return image
    shrinks = image.shape[0] > size[0]
    return cv2.resize(
        image, size[::-1], interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC
    )


def _same_aspect(size: Size, other: Size) -> bool:
    return abs(size[1] * other[0] / (size[0] * other[1]) - 1) <= _TOLERANCE


def _text(size: Size) -> str:
    return f"{size[1]}x{size[0]}"
