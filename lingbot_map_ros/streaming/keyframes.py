# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Who decides which frames stay: a fixed interval, image motion, or the user.

All three use the model's one mechanism: a frame enters as pending and is committed or rolled back.
They differ only in who decides, and when.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.geometry.projection import mean_induced_flow
from lingbot_map_ros.integers import require_integers

if TYPE_CHECKING:
    from lingbot_map_ros.streaming.observation import Observation

KEYFRAME_MODES = ("interval", "motion", "manual")


def check_depth(mode: str, depth_every: int) -> None:
    """Refuse keyframes by motion where frames lack depth (ConfigurationError)."""
    if depth_every > 1 and mode == "motion":
        raise ConfigurationError(
            f"depth_every: {depth_every} does not go with keyframe_mode: motion, which needs the "
            "depth of every frame; set depth_every to 1 or keyframe_mode to interval"
        )


class Intent(enum.Enum):
    """What is known about a frame before the network sees it."""

    KEEP = "keep"
    SKIP = "skip"
    MEASURE = "measure"
    """Kept or dropped by what its output shows."""
    ASK = "ask"
    """Pending until the user decides."""


@dataclass(frozen=True)
class KeyframeRule:
    """The settings of a keyframe decision; stateless."""

    mode: str = "interval"
    interval: int = 1
    motion_px: float = 12.0
    """Mean image motion against the last keyframe, in pixels of the network's image."""
    max_gap: int = 30
    """In motion mode, every such frame after a keyframe is kept however little moved."""

    def __post_init__(self) -> None:
        require_integers(self)
        if self.mode not in KEYFRAME_MODES:
            raise ConfigurationError(f"keyframe mode '{self.mode}' must be one of {KEYFRAME_MODES}")
        if self.interval < 1 or self.max_gap < 1:
            raise ConfigurationError(
                f"keyframe interval {self.interval} and max_gap {self.max_gap} must be at least 1"
            )
        if not (np.isfinite(self.motion_px) and self.motion_px > 0):
            raise ConfigurationError(f"keyframe motion_px {self.motion_px} must be positive")

    def intent(self, *, first: bool, skipped: int) -> Intent:
        """Say what happens to the next frame.

        Parameters
        ----------
        first
            The frame is the first after the scale frames; it is always kept.
        skipped
            Frames since the last keyframe.

        """
        if self.mode == "manual":
            return Intent.ASK
        if self.mode == "motion":
            return Intent.MEASURE
        return Intent.KEEP if first or skipped + 1 >= self.interval else Intent.SKIP

    def keeps(
        self, frame: Observation, keyframe: Observation, *, first: bool, skipped: int
    ) -> bool:
        """Decide on a measured frame; both observations are of one window."""
        if first or skipped + 1 >= self.max_gap:
            return True
        return motion(frame, keyframe) > self.motion_px


def motion(frame: Observation, keyframe: Observation) -> float:
    """Mean induced flow in pixels of `frame` (with depth) against `keyframe`."""
    return mean_induced_flow(
        frame.depth, frame.intrinsics, frame.pose, keyframe.intrinsics, keyframe.pose, stride=8
    )
