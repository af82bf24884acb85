# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whether an image of another size is a stray one, or the camera's size has changed."""

from __future__ import annotations

from lingbot_map_ros.errors import InputError

CHANGED_FRAMES = 3
"""So many images in a row of one new size are a camera whose size has changed."""


class OtherSizeError(InputError):
    """An image of another size than those of its session."""


class SizeGuard:
    """Knows the size of a session's images, and when they have another one for good."""

    def __init__(self) -> None:
        self.size: tuple[int, int] | None = None
        """Height and width of the session's images; None before the first."""
        self._other: tuple[int, int] | None = None
        self._in_a_row = 0

    def changes(self, height: int, width: int) -> bool:
        """Whether images have this size from now on, and had no or another one before.

        Raises
        ------
        OtherSizeError
            The image is of another size, and fewer than `CHANGED_FRAMES` of it came in a row.
        """
        size = (height, width)
        if size == self.size:
            self._other, self._in_a_row = None, 0
            return False
        self._in_a_row = self._in_a_row + 1 if size == self._other else 1
        self._other = size
        if self.size is not None and self._in_a_row < CHANGED_FRAMES:
            raise OtherSizeError(
                f"its size is {width}x{height} among images of {self.size[1]}x{self.size[0]}; a "
                f"new session begins when {CHANGED_FRAMES} of one new size come in a row"
            )
        return True
