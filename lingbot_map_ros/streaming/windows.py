# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Endless streams: a new window of the model, opened from the last keyframes of the old one.

The network knows one world per window, with an origin and a unit of its own. `Placement` says where
that world lies; `reopen` shows the last keyframes to an emptied network and fits the new world onto
the map by what both windows say of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from lingbot_map_ros.geometry.alignment import (
    REJECTION_SIGMAS,
    AlignmentError,
    AlignmentQuality,
    KeyframeView,
    Sim3,
    align_keyframes,
)
from lingbot_map_ros.geometry.poses import invert, rotation_angle
from lingbot_map_ros.streaming.frame import Frame
from lingbot_map_ros.streaming.observation import Observation, observe

if TYPE_CHECKING:
    from lingbot_map_ros.models.gct_stream import GCTStream

ANCHOR_FLOOR = 0.01
"""A frame whose two poses agree within this fraction of the scene's depth hands the odometry on."""
MAX_SCALE = 1e3
"""Units of two windows that differ by more than this are a failure, not a fit."""


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the world of a window lies in the map, and the odometry's world with it."""

    map_from_window: Sim3
    map_from_odom: NDArray[np.float64]
    """``[4, 4]``, rigid."""

    @classmethod
    def start(cls, first: NDArray[np.float64]) -> Placement:
        """Place a stream's first window so that its first camera (raw pose) is the origin."""
        origin = invert(first)
        return cls(Sim3(1.0, origin[:3, :3], origin[:3, 3]), np.eye(4))

    @property
    def scale(self) -> float:
        """Map units per raw unit."""
        return self.map_from_window.scale

    def pose_map(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bring a raw pose into the map."""
        return self.map_from_window.apply_pose(raw)

    def pose_odom(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bring a raw pose into the world of the odometry."""
        return self._odom_from_map @ self.pose_map(raw)

    @cached_property
    def _odom_from_map(self) -> NDArray[np.float64]:
        return invert(self.map_from_odom)

    def follow(self, raw: NDArray[np.float64], pose_odom: NDArray[np.float64]) -> Placement:
        """Place a world that shares nothing with the old one: its camera `raw` is at `pose_odom`.

        Unit and correction stay what they were, for want of any measurement.
        """
        target = self.map_from_odom @ pose_odom
        R = target[:3, :3] @ raw[:3, :3].T
        t = target[:3, 3] - self.scale * R @ raw[:3, 3]
        return Placement(Sim3(self.scale, R, t), self.map_from_odom)


@dataclass(frozen=True, eq=False)
class HandedOut:
    """The frame that was handed out last, and its pose in the odometry, which must not jump."""

    frame: Frame
    pose_odom: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reopened:
    """A window opened from the keyframes of another."""

    keyframes: tuple[Observation, ...]
    last: Observation
    """The frame that was handed out last, as the new window sees it."""
    placement: Placement
    quality: AlignmentQuality


def start(model: GCTStream, frames: Sequence[Frame]) -> list[Observation]:
    """Empty the model and show it up to ``num_scale_frames`` frames in one call."""
    model.reset()
    images = torch.stack([frame.tensor for frame in frames])
    return observe(frames, model.step(images, mode="keyframe", depth=True))


def reopen(
    model: GCTStream,
    keyframes: Sequence[Observation],
    last: HandedOut,
    placement: Placement,
    scale_frames: int,
) -> Reopened:
    """Open a window from keyframes (oldest first) of the old one.

    The odometry stays continuous: the frame handed out last keeps its pose there, and what the new
    window corrects goes into ``map_from_odom``. If that frame was no keyframe it is shown to the
    new window too, leaving no trace in it.

    Raises
    ------
    AlignmentError
        The two windows share nothing that can be fitted; the model is left in an unusable state.

    """
    frames = [keyframe.frame for keyframe in keyframes]
    seen = start(model, frames[:scale_frames])
    for frame in frames[scale_frames:]:
        seen += observe([frame], model.step(frame.tensor[None], mode="keyframe", depth=True))
    map_from_window, quality = align_keyframes(
        [_view(old, placement) for old in keyframes],
        [KeyframeView(new.pose, new.depth, new.confidence) for new in seen],
    )
    ratio = map_from_window.scale / placement.scale
    if not 1 / MAX_SCALE < ratio < MAX_SCALE:
        raise AlignmentError(f"the unit of the new window is {ratio:.3g} times that of the old one")
    newest = seen[-1]
    if last.frame.index != newest.frame.index:
        prediction = model.step(last.frame.tensor[None], mode="skip", depth=True)
        newest = observe([last.frame], prediction)[0]
    moved = Placement(map_from_window, placement.map_from_odom)
    anchor = newest.pose, last.pose_odom
    if not newest.valid or _disagreement(moved, anchor, quality) > _tolerance(quality):
        # The new window errs on this very frame: hang on to the newest that both agree on.
        i = quality.inliers[-1]
        anchor = seen[i].pose, placement.pose_odom(keyframes[i].pose)
    raw, pose_odom = anchor
    correction = moved.pose_map(raw) @ invert(pose_odom)
    return Reopened(tuple(seen), newest, Placement(map_from_window, correction), quality)


def _disagreement(
    moved: Placement,
    anchor: tuple[NDArray[np.float64], NDArray[np.float64]],
    quality: AlignmentQuality,
) -> float:
    """Shift of the scene, as a fraction of its depth, between a frame's new and old pose."""
    raw, pose_odom = anchor
    old = moved.map_from_odom @ pose_odom
    difference = invert(old) @ moved.pose_map(raw)
    distance = float(np.linalg.norm(difference[:3, 3])) / quality.scene_depth
    return distance + float(rotation_angle(difference))


def _tolerance(quality: AlignmentQuality) -> float:
    return max(REJECTION_SIGMAS * quality.relative_error, ANCHOR_FLOOR)


def _view(keyframe: Observation, placement: Placement) -> KeyframeView:
    depth = keyframe.depth
    if depth is not None:
        depth = depth * np.float32(placement.scale)
    return KeyframeView(placement.pose_map(keyframe.pose), depth, keyframe.confidence)
