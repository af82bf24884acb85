# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whether an image of another size is a stray one, or the camera's size has changed."""

from __future__ import annotations

from lingbot_map_ros.errors import InputError

CHANGED_FRAMES = 3
"""So many images in a row of one new size are a camera whose size has changed."""
MIXED_FRAMES = 10
"""So many in a row of any sizes but the session's are one, too: nothing else comes any more."""


class OtherSizeError(InputError):
    """An image of another size than those of its session."""


class SizeGuard:
    """Knows the size of a session's images, and when they have another one for good."""

    def __init__(self) -> None:
        self.size: tuple[int, int] | None = None
        """Height and width of the session's images; None before `settle`."""
        self._other: tuple[int, int] | None = None
        self._in_a_row = 0
        self._others = 0

    def settle(self, height: int, width: int) -> None:
        """Take this for the size of the session's images from now on."""
        self.size = (height, width)
        self._other, self._in_a_row, self._others = None, 0, 0

    def changes(self, height: int, width: int) -> bool:
        """Whether images have this size from now on, and had no or another one before.

        Raises
        ------
        OtherSizeError
            The image is of another size, of which fewer than `CHANGED_FRAMES` came in a row, among
            fewer than `MIXED_FRAMES` of other sizes.
        """
        if self.size is None:
            return True
        size = (height, width)
        if size == self.size:
            self.settle(height, width)
            return False
        self._others += 1
        self._in_a_row = self._in_a_row + 1 if size == self._other else 1
        self._other = size
        if self._in_a_row < CHANGED_FRAMES and self._others < MIXED_FRAMES:
            raise OtherSizeError(
                f"its size is {width}x{height} among images of {self.size[1]}x{self.size[0]}; a "
                f"new session begins when {CHANGED_FRAMES} of one new size come in a row, or "
                f"{MIXED_FRAMES} of any"
            )
        return True
