# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What becomes of an observation: whether it is believed, and what is handed out of it.

Functions of the state alone; the model has no part in this.
"""

from __future__ import annotations

import math
from dataclasses import replace

from lingbot_map_ros.geometry.alignment import AlignmentError
from lingbot_map_ros.streaming.comparison import MAX_FLOW
from lingbot_map_ros.streaming.guard import ANOTHER_SCENE, View
from lingbot_map_ros.streaming.observation import Observation
from lingbot_map_ros.streaming.results import FrameResult
from lingbot_map_ros.streaming.state import StreamState, Track
from lingbot_map_ros.streaming.windows import Placement

RECOVERY = 10
"""Frames after a loss whose covariance is raised, at first `RECOVERY_COVARIANCE` times."""
RECOVERY_COVARIANCE = 100.0


class WithheldError(Exception):
    """The guard does not believe the network's output."""


def max_flow(state: StreamState, *, anchoring: bool) -> float:
    """How far a frame may have moved to be compared with the last, as a share of the width.

    Large motion excuses a frame, but not one that a lost stream would go on from.
    """
    return math.inf if anchoring or _is_elsewhere(state) else MAX_FLOW


def judge(state: StreamState, observation: Observation, *, anchoring: bool) -> View:
    """Compare a frame with the recent ones; raises WithheldError when it cannot be true.

    `anchoring`: a lost stream would go on from it.
    """
    if not observation.valid:
        raise WithheldError("the network's output is not finite, or no pose")
    view = view_of(state, observation)
    if reason := state.track.guard.reject(view, state.lost):
        raise WithheldError(reason)
    if anchoring and _is_elsewhere(state) and observation.comparison is None:
        raise WithheldError("nothing of what the last keyframes saw is in view")
    return view


def view_of(state: StreamState, observation: Observation) -> View:
    """Reduce an observation of the open window to what the guard compares."""
    placement = placement_of(state)
    return View.of(observation, placement.pose_odom(observation.pose), placement.scale)


def hand_out(
    state: StreamState,
    observation: Observation,
    view: View,
    *,
    keyframe: bool,
    pending: bool = False,
    judged: bool = True,
) -> tuple[StreamState, FrameResult]:
    """Accept a frame: what the next ones are compared with, and what the caller gets."""
    track, placement, frame = state.track, placement_of(state), observation.frame
    recovering = RECOVERY if state.lost else track.recovering
    depth = observation.depth
    if depth is not None and placement.scale != 1.0:
        depth = depth * depth.dtype.type(placement.scale)
    result = FrameResult(
        epoch=state.epoch,
        index=frame.index,
        stamp_ns=frame.stamp_ns,
        pose_map=placement.pose_map(observation.pose),
        pose_odom=view.pose_odom,
        intrinsics=observation.intrinsics if frame.intrinsics is None else frame.intrinsics,
        depth=depth,
        confidence=observation.confidence,
        image=frame.pixels,
        keyframe=keyframe,
        pending=pending,
        covariance_scale=RECOVERY_COVARIANCE ** (recovering / RECOVERY),
        segment=state.segment,
        window=state.window,
    )
    guard = track.guard.accept(view) if judged else track.guard.begin(view)
    track = Track(
        last=observation,
        guard=guard,
        recovering=max(recovering - 1, 0),
        since_depth=0 if depth is not None else track.since_depth + 1,
    )
    return replace(state, track=track, lost=0, rejected=0), result


def placement_of(state: StreamState) -> Placement:
    """Where the open window lies; AlignmentError if none is open."""
    if state.placement is None:
        raise AlignmentError("no window is open")
    return state.placement


def _is_elsewhere(state: StreamState) -> bool:
    """Whether the stream is lost because the images showed another scene."""
    return state.lost > 0 and state.reason.startswith(ANOTHER_SCENE)
