# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Gray levels for raw 16-bit counts, as thermal and high-dynamic-range cameras send them."""

from __future__ import annotations

import numpy as np

_SAMPLES = 20_000
_PERCENTILES = (1.0, 99.0)
_MARGIN = 0.1
_RATE = 0.02


class IntensityWindow:
    """Slowly adapting range of counts that is shown as black to white.

    ``16UC1`` says nothing about the range in use: a shift by eight bits turns a 12-bit camera
    black, and a range per image makes the brightness flicker whenever something hot comes in,
    which the network sees as a change of scene. So the first image sets the range (1st to 99th
    percentile and a margin of a tenth), and every later one moves it by a fiftieth of the
    difference. The same images in the same order give the same result. One window per stream;
    a new window for a new session. Not thread-safe.
    """

    def __init__(self) -> None:
        self._range: tuple[float, float] | None = None

    def apply(self, counts: np.ndarray) -> np.ndarray:
        """Gray levels uint8 [H, W] of counts [H, W]; adapts the window to this image."""
        stride = max(1, int((counts.size / _SAMPLES) ** 0.5))
        low, high = np.percentile(counts[::stride, ::stride], _PERCENTILES)
        margin = _MARGIN * (high - low) + 0.5
        low, high = low - margin, high + margin
        if self._range is not None:
            low = self._range[0] + _RATE * (low - self._range[0])
            high = self._range[1] + _RATE * (high - self._range[1])
        self._range = (float(low), float(high))
        levels = (counts.astype(np.float32) - np.float32(low)) * np.float32(255.0 / (high - low))
        return np.clip(np.rint(levels), 0, 255).astype(np.uint8)
