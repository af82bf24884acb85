# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One camera's stream: images in, poses and depth out, without an end and without half steps."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.errors import RollbackError
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.streaming.camera_model import CameraModel
from lingbot_map_ros.streaming.config import Limits, SessionConfig
from lingbot_map_ros.streaming.intake import Intake
from lingbot_map_ros.streaming.results import Decision, FrameResult, SessionState, SessionStatus
from lingbot_map_ros.streaming.state import StreamState
from lingbot_map_ros.streaming.stepper import Stepper
from lingbot_map_ros.streaming.summary_recorder import SummaryRecorder

__all__ = ["SessionConfig", "StreamingSession"]


class StreamingSession:
    """A transaction log over the model.

    Parameters
    ----------
    model
        Owned by the session from now on; it is reset.
    config
        Settings; see ``SessionConfig``.
    camera
        Calibration of the images, or None. May be set later: the next frame uses it.

    Raises
    ------
    ConfigurationError
        Settings that cannot work, alone, together or with this model.

    Notes
    -----
    Not thread-safe: one thread owns a session. Any exception in any method leaves the session as it
    was. In particular ``step`` is all or nothing, and a rolled-back frame leaves no trace.

    """

    def __init__(
        self,
        model: GCTStream,
        config: SessionConfig | None = None,
        *,
        camera: CameraModel | None = None,
    ) -> None:
        self.config = config or SessionConfig()
        self.camera = camera
        self._model = model
        self._state = StreamState(epoch=-1)
        self._limits = Limits.of(self.config, model)
        self._rule = self.config.keyframe_rule
        self._recorder = SummaryRecorder(model.device)
        self._stepper = Stepper(model, self.config, self._limits, self._recorder)
        self._intake = Intake(model.config, model.device)
        self.reset()

    def step(self, image: NDArray[np.uint8], stamp_ns: int) -> list[FrameResult]:
        """Feed the next image, uint8 RGB ``[H, W, 3]``.

        Returns
        -------
        list[FrameResult]
            Nothing while the first ``num_scale_frames`` gather, then all of them; later the one
            frame, or nothing when its output cannot be trusted.

        Raises
        ------
        InputError
            Not such an image, a stamp that is no integer, or another size than before in this
            epoch: reset first.

        """
        began = time.perf_counter()
        before = self._state
        frame = self._intake.frame(
            image, self.camera, before.size, index=before.frames, stamp_ns=stamp_ns
        )
        prepared = time.perf_counter()
        try:
            after, results = self._stepper.advance(
                replace(before, frames=before.frames + 1, size=image.shape),
                self._rule,
                frame,
            )
        except BaseException:
            self._state = replace(before, stale=before.stale or self._stepper.emptied)
            raise
        self._state = after
        done = time.perf_counter()
        timings = {"preprocess": (prepared - began) * 1e3, "model": (done - prepared) * 1e3}
        return [replace(result, timings=timings) for result in results]

    def commit(self) -> list[int]:
        """Keep all pending frames; returns their indices, oldest first."""
        pending = self._state.pending
        if pending:
            state = self._state.decide(len(pending), self._limits.overlap)
            self._model.commit()
            self._state = state
        return [entry.observation.frame.index for entry in pending]

    def rollback(self) -> int:
        """Drop the newest pending frame as if it had never come; returns its index.

        Raises RollbackError if nothing is pending.
        """
        if not self._state.pending:
            raise RollbackError("no frame is pending; set_deferred(True) makes new frames wait")
        state = self._state.revoke()
        self._model.rollback()
        self._state = state
        return state.decisions[-1].index

    def set_deferred(self, deferred: bool) -> list[int]:
        """Enter manual keyframe mode, or leave it: that commits, and returns, what is pending."""
        if deferred:
            self._rule = replace(self._rule, mode="manual")
            return []
        configured = self.config.keyframe_mode
        rule = replace(self._rule, mode="interval" if configured == "manual" else configured)
        committed = self.commit()
        self._rule = rule
        return committed

    def update_keyframes(
        self,
        *,
        mode: str | None = None,
        interval: int | None = None,
        motion_px: float | None = None,
        max_gap: int | None = None,
    ) -> list[int]:
        """Change keyframe settings from the next frame on; None keeps one.

        Leaving the manual mode commits what is pending and returns the indices. Raises
        ConfigurationError for a value out of range.
        """
        old = self.config
        config = replace(
            old,
            keyframe_mode=old.keyframe_mode if mode is None else mode,
            keyframe_interval=old.keyframe_interval if interval is None else interval,
            keyframe_motion_px=old.keyframe_motion_px if motion_px is None else motion_px,
            keyframe_max_gap=old.keyframe_max_gap if max_gap is None else max_gap,
        )
        rule = config.keyframe_rule
        if mode is None:
            rule = replace(rule, mode=self._rule.mode)
        committed = [] if rule.mode == "manual" else self.commit()
        self._rule, self.config = rule, config
        return committed

    def update_lost_after(self, frames: int) -> None:
        """Change after how many withheld frames the stream re-anchors (see ``SessionConfig``)."""
        config = replace(self.config, lost_after=frames)
        self._limits = Limits.of(config, self._model)
        self._stepper = Stepper(self._model, config, self._limits, self._recorder)
        self.config = config

    def drain_decisions(self) -> list[Decision]:
        """Return what became of pending frames since the last call, oldest first.

        Call it after every call that may decide: only the newest decisions are remembered.
        """
        decisions = list(self._state.decisions)
        self._state = replace(self._state, decisions=())
        return decisions

    def reset(self, *, keep_mode: bool = False) -> None:
        """Forget the stream; the next image starts a new epoch, like a new session.

        With ``keep_mode`` the keyframe mode stays that of the last ``set_deferred``.
        """
        self._model.reset()
        if not keep_mode:
            self._rule = self.config.keyframe_rule
        self._state = StreamState(epoch=self._state.epoch + 1)

    @property
    def epoch(self) -> int:
        """Number of resets."""
        return self._state.epoch

    @property
    def state(self) -> SessionState:
        """Where the stream stands."""
        if self._state.lost:
            return SessionState.LOST
        return SessionState.TRACKING if self._state.open else SessionState.INITIALISING

    @property
    def deferred(self) -> bool:
        """Whether new frames wait for the user's decision."""
        return self._rule.mode == "manual"

    @property
    def pending(self) -> int:
        """Frames that wait for a decision."""
        return len(self._state.pending)

    @property
    def map_from_odom(self) -> NDArray[np.float64]:
        """Rigid ``[4, 4]`` that brings odometry poses into the map, in model units."""
        placement = self._state.placement
        return np.eye(4) if placement is None else placement.map_from_odom.copy()

    def status(self) -> SessionStatus:
        """Numbers for diagnostics."""
        state, quality = self._state, self._state.quality
        return SessionStatus(
            state=self.state,
            epoch=state.epoch,
            frames=state.frames,
            gathered=len(state.gathered),
            needed=self._limits.scale_frames,
            kept=state.kept,
            capacity=self._limits.window_size,
            max_keyframes=self._limits.max_keyframes,
            pending=self.pending,
            deferred=self.deferred,
            window=max(state.window, 0),
            segment=state.segment,
            withheld=state.withheld,
            lost_frames=state.lost,
            last_reason=state.reason,
            alignment_error=float("nan") if quality is None else quality.relative_error,
            alignment_inliers=float("nan") if quality is None else quality.inlier_ratio,
            policy_applied=state.policy_applied,
        )
