# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One frame's way through the model: gather, open a window, track, decide."""

from __future__ import annotations

import logging
from dataclasses import replace

from lingbot_map_ros.aggregator.stream import FrameMode
from lingbot_map_ros.geometry.alignment import AlignmentError
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.streaming.config import Limits, SessionConfig
from lingbot_map_ros.streaming.frame import Frame
from lingbot_map_ros.streaming.guard import Guard, View
from lingbot_map_ros.streaming.handout import (
    WithheldError,
    hand_out,
    judge,
    max_flow,
    placement_of,
    view_of,
)
from lingbot_map_ros.streaming.keyframes import Intent, KeyframeRule
from lingbot_map_ros.streaming.observation import Observation, observe
from lingbot_map_ros.streaming.pending_policy import PendingPolicy
from lingbot_map_ros.streaming.results import FrameResult
from lingbot_map_ros.streaming.state import Pending, StreamState, Track
from lingbot_map_ros.streaming.summary_recorder import SummaryRecorder
from lingbot_map_ros.streaming.windows import HandedOut, Placement, reopen, start
from lingbot_map_ros.wording import counted

logger = logging.getLogger(__name__)

_MODE: dict[Intent, FrameMode] = {
    Intent.KEEP: "keyframe",
    Intent.SKIP: "skip",
    Intent.MEASURE: "pending",
    Intent.ASK: "pending",
}


class Stepper:
    """Takes a state and a frame, runs the model, returns the next state and the results.

    A call that raises has changed nothing but, if `emptied` is set, the model's window: the caller
    marks its state as stale, and the next call opens the window again from the same keyframes.
    """

    def __init__(
        self,
        model: GCTStream,
        config: SessionConfig,
        limits: Limits,
        recorder: SummaryRecorder,
    ) -> None:
        self.emptied = False
        self._model = model
        self._config = config
        self._limits = limits
        self._policy = PendingPolicy(model, config, limits)
        self._recorder = recorder

    def advance(
        self, state: StreamState, rule: KeyframeRule, frame: Frame
    ) -> tuple[StreamState, list[FrameResult]]:
        """Process one frame; see `StreamingSession.step`."""
        self.emptied = False
        if state.track.guard.is_blank(frame.contrast, starting=not state.open):
            return self._withhold(state, "the image is blank", showed=False), []
        if not state.open:
            return self._gather(state, frame)
        anchoring = state.rejected >= self._config.lost_after and not state.pending
        # What is full must not depend on how the frame is meant: it may be rolled back later.
        full = state.kept >= self._limits.window_size and not state.pending
        window = state
        try:
            if anchoring or full or state.stale:
                window = self._reopen(state)
            return self._track(window, rule, frame, anchoring)
        except AlignmentError as error:
            return self._new_segment(state, frame, str(error))
        except WithheldError as reason:
            if anchoring:
                return self._new_segment(state, frame, str(reason))
            return self._policy.settle_lost(self._withhold(window, str(reason), showed=True)), []

    def _gather(self, state: StreamState, frame: Frame) -> tuple[StreamState, list[FrameResult]]:
        """Collect scale frames, and start a segment when there are enough."""
        state = replace(state, gathered=(*state.gathered, frame))
        if len(state.gathered) < self._limits.scale_frames:
            return state, []
        observations = start(self._model, state.gathered)
        good = tuple(observation.frame for observation in observations if observation.valid)
        if len(good) < len(observations):
            # Once more without the bad ones; and without the oldest good one if that was tried
            # before, so that a frame which spoils the others does not stay for ever.
            kept = good[1:] if state.regathered else good
            dropped = len(observations) - len(kept)
            reason = f"the network gave no finite output for {dropped} of the scale frames"
            state = replace(state, gathered=kept, regathered=True)
            return self._withhold(state, reason, showed=True, count=dropped), []
        guard = state.track.guard
        placement = (
            Placement.start(observations[0].pose)
            if state.placement is None or guard.last is None
            else state.placement.follow(observations[0].pose, guard.last.pose_odom)
        )
        state = replace(
            state,
            gathered=(),
            regathered=False,
            open=True,
            stale=False,
            window=state.window + 1,
            first=True,
            kept=len(observations),
            skipped=0,
            keyframes=tuple(observations[-self._limits.overlap :]),
            placement=placement,
            track=Track(guard=Guard(contrast=guard.contrast)),
        )
        results = []
        for observation in observations:
            view = view_of(state, observation)
            state, result = hand_out(state, observation, view, keyframe=True, judged=False)
            results.append(result)
        return state, results

    def _track(
        self, state: StreamState, rule: KeyframeRule, frame: Frame, anchoring: bool
    ) -> tuple[StreamState, list[FrameResult]]:
        """Run one frame in the open window; all or nothing, in the model too."""
        intent = rule.intent(first=state.first, skipped=state.skipped)
        with self._model.transaction():
            prediction = self._model.step(
                frame.tensor[None], _MODE[intent], depth=self._wants_depth(state, intent)
            )
            flow = max_flow(state, anchoring=anchoring)
            (observation,) = observe([frame], prediction, state.track.last, flow, self._recorder)
            view = judge(state, observation, anchoring=anchoring)
            if intent is Intent.ASK:
                return self._ask(state, observation, view)
            keep = intent is Intent.KEEP
            if intent is Intent.MEASURE:
                keep = rule.keeps(
                    observation, state.keyframes[-1], first=state.first, skipped=state.skipped
                )
            state, result = hand_out(state, observation, view, keyframe=keep)
            if keep:
                state = state.keep(observation, self._limits.overlap)
            else:
                state = replace(state, skipped=state.skipped + 1)
            if intent is Intent.MEASURE:
                self._decide(keep)
            return state, [result]

    def _decide(self, keep: bool) -> None:
        if keep:
            self._model.commit()
        else:
            self._model.rollback()

    def _ask(
        self, state: StreamState, observation: Observation, view: View
    ) -> tuple[StreamState, list[FrameResult]]:
        """Let the frame wait for the user, and apply the policy when too many wait."""
        over = self._policy.over(state)
        if over:
            state = self._policy.applied(state)
        drop = over and self._policy.drops
        before = state.track
        state, result = hand_out(state, observation, view, keyframe=not drop, pending=not drop)
        if drop:
            self._model.rollback()
            return state, [result]
        return self._policy.take(state, Pending(observation, before), over=over), [result]

    def _reopen(self, state: StreamState) -> StreamState:
        """Open the next window from the last keyframes; raises AlignmentError if that fails."""
        last, view = state.track.last, state.track.guard.last
        if last is None or view is None:
            raise AlignmentError("no frame was handed out yet")
        self.emptied = True
        reopened = reopen(
            self._model,
            state.keyframes,
            HandedOut(last.frame, view.pose_odom),
            placement_of(state),
            self._limits.scale_frames,
        )
        logger.info(
            "window %d opens from %s, %.0f%% agree, fit within %.2g of the scene",
            state.window + 1,
            counted(len(reopened.keyframes), "keyframe"),
            100 * reopened.quality.inlier_ratio,
            reopened.quality.relative_error,
        )
        state = replace(
            state,
            stale=False,
            window=state.window + 1,
            first=False,
            kept=len(reopened.keyframes),
            keyframes=reopened.keyframes,
            placement=reopened.placement,
            quality=reopened.quality,
        )
        return replace(state, track=replace(state.track, last=reopened.last))

    def _new_segment(
        self, state: StreamState, frame: Frame, reason: str
    ) -> tuple[StreamState, list[FrameResult]]:
        """Give the window up; the frame is the first of a world of its own."""
        logger.warning("map segment %d begins: %s", state.segment + 1, reason)
        state = replace(
            state,
            open=False,
            stale=False,
            segment=state.segment + 1,
            kept=0,
            keyframes=(),
            lost=max(state.lost, 1),
            reason=f"new map segment: {reason}",
        )
        if state.track.guard.is_blank(frame.contrast, starting=True):
            return self._withhold(state, "the image is blank", showed=False), []
        return self._gather(state, frame)

    def _withhold(
        self, state: StreamState, reason: str, *, showed: bool, count: int = 1
    ) -> StreamState:
        if not state.lost:
            logger.warning("frames are withheld: %s", reason)
        return state.withhold(reason, showed=showed, count=count)

    def _wants_depth(self, state: StreamState, intent: Intent) -> bool:
        # Windows are aligned, and the map is made, by the depth of keyframes.
        due = state.track.since_depth + 1 >= self._config.depth_every
        return due or intent is not Intent.SKIP
