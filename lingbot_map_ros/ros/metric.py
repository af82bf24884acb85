# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From model units to metres, and where the map lies in somebody's odometry."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.mapping.scale import AGREEMENT, ScaleEstimator
from lingbot_map_ros.streaming.results import FrameResult

MetricPose = Callable[[int], "NDArray[np.float64] | None"]
"""Pose [4, 4] of the base in somebody's odometry, in metres, at a stamp; None if not known."""

logger = logging.getLogger(__name__)

WAITING = 128
"""Frames that wait for the odometry of their stamp."""
LONGEST_STEP_S = 1.0
"""Longest time between two frames that counts as time without odometry."""


@dataclass(frozen=True)
class Match:
    """A frame whose base pose in somebody's odometry is known."""

    result: FrameResult
    odom_from_base: NDArray[np.float64]


class MetricScale:
    """The factor from model units to metres, by ``scale_source``.

    Odometry of an image's stamp comes after the image, so frames wait for it here.

    Parameters
    ----------
    source, scale
        The parameters ``scale_source`` and ``scale``.
    metric_pose
        Somebody's odometry.
    """

    def __init__(self, source: str, scale: float, metric_pose: MetricPose) -> None:
        self.source = source
        self._fixed = scale
        self._metric_pose = metric_pose
        self._waiting: deque[FrameResult] = deque(maxlen=WAITING)
        self._segment = 0
        self._estimator = ScaleEstimator(source, scale)
        self._observed: float | None = None
        self.unmatched_for = 0.0
        """Seconds, up to the newest frame, in which no odometry matched any."""
        self.unsettled_for = 0.0
        """Seconds of frames that odometry matched without settling the scale; 0 once it has."""

    @property
    def known(self) -> bool:
        """Whether `factor` gives metres."""
        return self.source != "none" and self._estimator.settled

    @property
    def factor(self) -> float:
        """Metres per model unit, or 1 until that is known."""
        return float(self._estimator.scale) if self.known else 1.0

    @property
    def label(self) -> str:
        """State of the scale in words, for diagnostics."""
        if self.source == "none":
            return "model units"
        if not self.known:
            return f"model units: {self._estimator.missing}"
        text = f"{self.factor:.5g} m per unit"
        differs = self._estimator.differs
        if differs > AGREEMENT:
            text += f" (parts of the path differ by up to {100 * differs:.0f} %)"
        return text

    def observe(
        self, results: list[FrameResult], base_from_camera: NDArray[np.float64]
    ) -> Match | None:
        """Take the results of a step; returns the newest frame whose odometry has come meanwhile.

        ``base_from_camera`` [4, 4] is the pose of the optical frame in the base, in metres.
        """
        for result in results:
            if result.segment != self._segment:
                # nothing relates the units of two segments
                self._segment = result.segment
                self._waiting.clear()
                self._estimator = ScaleEstimator(self.source, self._fixed)
            self._waiting.append(
                replace(result, depth=None, confidence=None, image=result.image[:0])
            )
        newest: Match | None = None
        unresolved: list[FrameResult] = []
        for result in self._waiting:
            odom_from_base = self._metric_pose(result.stamp_ns)
            if odom_from_base is None:
                unresolved.append(result)
                continue
            newest = Match(result, odom_from_base)
            if self.source == "odometry" and not self.known:
                self._estimator.add(
                    result.pose_odom, odom_from_base @ base_from_camera, result.stamp_ns
                )
                if self.known:
                    logger.info("the odometry gives the scale: %s", self.label)
        self._waiting = deque(unresolved, maxlen=WAITING)
        self._time_matches(newest is not None)
        return newest

    def _time_matches(self, matched: bool) -> None:
        now = time.monotonic()
        # A pause, or a camera that is silent, is no time in which odometry is missing.
        elapsed = 0.0 if self._observed is None else min(now - self._observed, LONGEST_STEP_S)
        self._observed = now
        self.unmatched_for = 0.0 if matched else self.unmatched_for + elapsed
        if self.known or self.source != "odometry":
            self.unsettled_for = 0.0
        elif matched:
            self.unsettled_for += elapsed

    def configured(self, source: str, scale: float) -> MetricScale:
        """Return one by these settings: itself, or one that has learnt nothing if they differ."""
        if source == self.source and (source != "fixed" or scale == self._fixed):
            return self
        return MetricScale(source, scale, self._metric_pose)

    def reset(self) -> None:
        """Forget what was learnt: a new session has other units."""
        self._waiting.clear()
        self._segment = 0
        self._estimator = ScaleEstimator(self.source, self._fixed)
        self._observed, self.unmatched_for, self.unsettled_for = None, 0.0, 0.0
