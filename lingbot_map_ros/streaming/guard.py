# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The collapse guard: which outputs of the network can be true, given the recent ones.

The bounds are generous on purpose. A frame is implausible when its step from the last good frame is
far beyond both what the recent steps were and what a camera on a robot can do; a handheld camera in
a hurry, or a network whose poses merely jitter, passes.

Measured with the small trained model on held-out rooms (every kind of motion, easy to hardest), a
walk of photographs, and images that were tampered with: good frames reach a quarter of the bounds
on motion and depth, and two thirds of that on confidence. Wrong images hardly more: shown another
room, upside down, or noise, the network answers with a step of a few per cent of the depth and a
confidence that good frames reach too. So those bounds catch a network that breaks down, tighter
ones would catch nothing else, and wrong images are told by the images themselves (`comparison`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.streaming.comparison import Comparison
from lingbot_map_ros.streaming.observation import Observation

HISTORY = 64
ARMED_AFTER = 16
"""Steps that must be known before motion and confidence are judged."""
FACTOR = 8.0
"""A step may exceed the 95th percentile of the recent steps this many times."""
MAX_TRANSLATION = 0.5
"""Of the scene's depth, always allowed in a frame."""
MAX_ROTATION = math.radians(45.0)
MAX_LOG_DEPTH = math.log(5.0)
"""The typical depth may always change this much: somebody steps in front of the camera."""
MIN_CONFIDENCE_DROP = math.log(20.0)
CONFIDENCE_FLOOR = 0.05
"""Confidence that is closer to its minimum of 1 counts as this close: lower says nothing more."""
ANOTHER_SCENE = "the image shows another scene"
MIN_AGREEMENT = 0.27
"""A frame of which less agrees with the last one shows another scene. Of images of other rooms one
in twenty reaches 0.2, none 0.3; of good frames none was below 0.5 at ten images a second, 0.4 at
three and 0.29 at two, with the hardest motion."""
USUAL_AGREEMENT = 0.4
"""What nine in ten recent frames must have reached for that: photographs a step apart agree too
little to be told from those of another place."""
MAX_LOG_SCALE = math.log(1.5)
"""Two frames may differ by this much on the depth of what both show. Good frames differ by less
than 1.13, and less than 1.26 over most of a second; with few images a second by 1.46 at most."""
BLANK_CONTRAST = 1.0
SEEN_CONTRAST = 8.0
"""Grey levels (standard deviation): below the first an image shows nothing, above the second it
shows a scene."""


@dataclass(frozen=True)
class History:
    """The newest values of a quantity; a bounded, immutable queue."""

    values: tuple[float, ...] = ()

    def add(self, value: float | None) -> History:
        """Return the history with one more value; None leaves it as it is."""
        return self if value is None else History((*self.values, value)[-HISTORY:])

    @property
    def armed(self) -> bool:
        """Whether enough is known for a judgement."""
        return len(self.values) >= ARMED_AFTER

    def bound(self, floor: float) -> float:
        """Largest plausible next value."""
        return max(floor, FACTOR * self.quantile(0.95))

    def median(self) -> float:
        """Median of the newest values."""
        return self.quantile(0.5)

    def quantile(self, share: float) -> float:
        """Quantile of the newest values; for so few numpy takes ten times as long."""
        ordered = sorted(self.values)
        at = share * (len(ordered) - 1)
        below = int(at)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (at - below) * (ordered[above] - ordered[below])


@dataclass(frozen=True, eq=False)
class View:
    """A frame reduced to what the guard compares, in units of the map."""

    pose_odom: NDArray[np.float64]
    stamp_ns: int
    log_depth: float | None
    """Log of the median depth, None where depth was not computed."""
    log_confidence: float | None
    """Log of the median confidence above its minimum of 1."""
    contrast: float
    """Grey levels (standard deviation) of the image."""
    comparison: Comparison | None = None
    """With the last frame, None where nothing can be said."""

    @classmethod
    def of(cls, frame: Observation, pose_odom: NDArray[np.float64], scale: float) -> View:
        """Reduce an observation whose raw depth becomes map units by `scale`."""
        log_depth = log_confidence = None
        if frame.typical_depth is not None and frame.typical_confidence is not None:
            log_depth = math.log(max(frame.typical_depth * scale, 1e-9))
            log_confidence = math.log(max(frame.typical_confidence - 1.0, CONFIDENCE_FLOOR))
        return cls(
            pose_odom,
            frame.frame.stamp_ns,
            log_depth,
            log_confidence,
            frame.frame.contrast,
            frame.comparison,
        )


@dataclass(frozen=True)
class Guard:
    """Recent behaviour of the stream; immutable, `accept` returns the next one."""

    last: View | None = None
    scene_log_depth: float = 0.0
    translation: History = History()
    rotation: History = History()
    depth_change: History = History()
    confidence: History = History()
    period: History = History()
    contrast: History = History()
    agreement: History = History()

    def is_blank(self, contrast: float, *, starting: bool) -> bool:
        """Whether an image of this contrast shows nothing where others showed a scene.

        A segment never starts from one: its scale frames decide about the unit of all that follows,
        and they show at once what is usual.
        """
        usual = self.contrast
        expected = starting or (bool(usual.values) and usual.median() > SEEN_CONTRAST)
        return contrast < BLANK_CONTRAST and expected

    def reject(self, view: View, lost: int) -> str:
        """Say why a frame cannot be true; empty if it can.

        `lost` is the number of frames withheld since the last good one: what may have happened
        meanwhile grows with it, and with the time between the stamps.
        """
        if self.last is None or not self.translation.armed:
            return ""
        elapsed = self._elapsed(view, lost)
        translation, rotation = _steps(self.last, view)
        limit = elapsed * self.translation.bound(MAX_TRANSLATION * math.exp(self.scene_log_depth))
        if translation > limit:
            return f"the camera jumped {translation:.3g}, {limit:.3g} is plausible"
        limit = elapsed * self.rotation.bound(MAX_ROTATION)
        if rotation > limit:
            return f"the camera turned {rotation:.2f} rad at once, {limit:.2f} is plausible"
        if view.log_depth is not None and self.depth_change.armed:
            change = abs(view.log_depth - self.scene_log_depth)
            limit = elapsed * self.depth_change.bound(MAX_LOG_DEPTH)
            if change > limit:
                return f"the depth changed {math.exp(min(change, 99)):.3g} times at once"
        return self._reject_confidence(view) or self._reject_scene(view)

    def accept(self, view: View) -> Guard:
        """Return the guard that has seen a good frame."""
        if self.last is None:
            return self.begin(view)
        translation, rotation = _steps(self.last, view)
        change = None if view.log_depth is None else abs(view.log_depth - self.scene_log_depth)
        agreement = None if view.comparison is None else view.comparison.agreement
        period = view.stamp_ns - self.last.stamp_ns
        return self._seen(
            view,
            translation=self.translation.add(translation),
            rotation=self.rotation.add(rotation),
            depth_change=self.depth_change.add(change),
            confidence=self.confidence.add(view.log_confidence),
            period=self.period.add(float(period) if period > 0 else None),
            agreement=self.agreement.add(agreement),
        )

    def begin(self, view: View) -> Guard:
        """Return the guard that has seen a scale frame, whose step is not judged."""
        return self._seen(view)

    def _seen(self, view: View, **steps: History) -> Guard:
        return replace(
            self,
            last=view,
            scene_log_depth=self.scene_log_depth if view.log_depth is None else view.log_depth,
            contrast=self.contrast.add(view.contrast),
            **steps,
        )

    def _elapsed(self, view: View, lost: int) -> float:
        if self.last is None or not self.period.values:
            return 1.0 + lost
        return max(1.0 + lost, (view.stamp_ns - self.last.stamp_ns) / self.period.median())

    def _reject_confidence(self, view: View) -> str:
        if view.log_confidence is None or not self.confidence.armed:
            return ""
        usual = self.confidence.median()
        spread = History(tuple(abs(v - usual) for v in self.confidence.values)).median()
        if usual - view.log_confidence > max(MIN_CONFIDENCE_DROP, FACTOR * 1.4826 * spread):
            return (
                f"confidence collapsed to {1 + math.exp(view.log_confidence):.3g}, "
                f"{1 + math.exp(usual):.3g} is usual"
            )
        return ""

    def _reject_scene(self, view: View) -> str:
        compared = view.comparison
        if compared is None or not self.agreement.armed:
            return ""
        usual = self.agreement.quantile(0.1)
        if usual > USUAL_AGREEMENT and compared.agreement < MIN_AGREEMENT:
            return (
                f"{ANOTHER_SCENE}: {compared.agreement:.0%} of it agrees with the last one, "
                f"{self.agreement.median():.0%} is usual"
            )
        if compared.log_scale is not None and abs(compared.log_scale) > MAX_LOG_SCALE:
            factor = math.exp(abs(compared.log_scale))
            return f"the depth of what was seen before changed {factor:.3g} times"
        return ""


def _steps(last: View, view: View) -> tuple[float, float]:
    """Translation, and rotation in rad, from one pose to the other."""
    # Numbers one by one: for so few numpy takes several times as long.
    rows = (view.pose_odom[:3] - last.pose_odom[:3]).tolist()
    # The rotations' chord, which is 2 sqrt(2) sin(angle / 2), is exact for small angles.
    half = math.hypot(*(entry for row in rows for entry in row[:3])) / math.sqrt(8)
    return math.hypot(*(row[3] for row in rows)), 2 * math.asin(min(half, 1.0))
