# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a stream hands out: frame results, decisions on pending frames, and its status."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


class SessionState(enum.Enum):
    """Where a stream stands."""

    INITIALISING = "initialising"
    """The first ``num_scale_frames`` frames of the stream are gathering."""
    TRACKING = "tracking"
    LOST = "lost"
    """The newest frames were withheld, or the scale frames of a new segment gather."""


@dataclass(frozen=True, eq=False)
class FrameResult:
    """One frame as the stream sees it.

    Poses are camera-to-world with optical axes (x right, y down, z forward), float64 ``[4, 4]``,
    in model units. ``pose_map`` is in the world of the map and takes every correction at a window
    switch; ``pose_odom`` is in a world where consecutive frames never jump. Both worlds coincide
    until the first switch and share one scale.
    """

    epoch: int
    """Number of resets before this frame."""
    index: int
    """Frame number within the epoch, 0 for the first image that entered the stream."""
    stamp_ns: int
    pose_map: NDArray[np.float64]
    pose_odom: NDArray[np.float64]
    intrinsics: NDArray[np.float64]
    """``[3, 3]``, in pixels of ``depth`` and ``image``."""
    depth: NDArray[np.float32] | None
    """``[H, W]`` along the optical axis, in units of the map; None when not computed."""
    confidence: NDArray[np.float32] | None
    """``[H, W]``, at least 1; None when ``depth`` is None."""
    image: NDArray[np.uint8]
    """``[H, W, 3]`` RGB, the pixels that the network saw."""
    keyframe: bool
    """The frame stays in the caches (final unless ``pending``)."""
    pending: bool
    """A later decision (see ``Decision``) keeps or drops the frame."""
    covariance_scale: float = 1.0
    """Factor on the nominal covariance, above 1 in the first frames after a re-anchoring."""
    segment: int = 0
    """Map segment; poses of different segments are not related by any measurement."""
    window: int = 0
    """Window of the model that produced the frame, counted from 0 in the epoch."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds per stage of the step that produced the frame."""


@dataclass(frozen=True)
class Decision:
    """The fate of the pending frame ``index`` of the current epoch."""

    index: int
    kept: bool


@dataclass(frozen=True)
class SessionStatus:
    """A snapshot for diagnostics; plain numbers and text, nothing that refers to the session."""

    state: SessionState
    epoch: int
    frames: int
    """Images that entered the stream in this epoch."""
    gathered: int
    """Scale frames gathered so far while initialising."""
    needed: int
    """Scale frames that a start needs."""
    kept: int
    """Frames that the caches hold a trace of in the current window, pending ones excluded."""
    capacity: int
    """Kept frames from which on the next window opens as soon as nothing is pending."""
    max_keyframes: int
    """Most kept frames that the caches hold; never reached but by late decisions."""
    pending: int
    deferred: bool
    window: int
    segment: int
    withheld: int
    """Frames withheld by the collapse guard in this epoch."""
    lost_frames: int
    """Frames withheld in a row up to now."""
    last_reason: str
    """Why the last frame was withheld, or the last window or segment event; empty if none."""
    alignment_error: float
    """Misfit of the last window switch as a fraction of the scene; NaN before the first."""
    alignment_inliers: float
    """Share of the overlap keyframes that agreed in the last switch; NaN before the first."""
    policy_applied: int
    """How often ``pending_policy`` had to decide in this epoch."""
