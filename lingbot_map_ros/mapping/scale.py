# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Metres per model unit."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.errors import ConfigurationError

SOURCES = ("none", "fixed", "odometry")

KNOT_SPACING = 0.1
"""Metres between two knots of a path at first; doubles whenever `MAX_KNOTS` are reached."""
FIRST_KNOTS, MIN_KNOTS, MAX_KNOTS = 9, 16, 64
"""When opinions on the scale are first heard, when it may settle, and when knots are thinned."""
MIN_EXTENT = 1.0
"""Metres that a path must span before its scale means anything."""
MIN_BASELINE = 0.25
"""Shortest distance compared, as a fraction of the extent: jitter weighs on short ones."""
AGREEMENT = 0.02
"""Largest relative difference of opinions that agree on a scale."""
STEADY = 0.6
"""Share of the path from which on they must have agreed: once may be by chance."""
LONG = 2 * MAX_KNOTS * KNOT_SPACING
"""Metres of a path whose scale is the best to be had: a unit that drifts goes on drifting."""
DRIFT = 0.25
"""Largest relative difference of the opinions then."""
STEP = 3
"""Knots between the ends of a short step."""
MAX_SPEED = 100.0
"""Metres a second that no robot makes: odometry that moves faster has begun again elsewhere."""


class _Place(NamedTuple):
    """Where the odometry was when, in metres."""

    stamp_ns: int
    position: NDArray[np.float64]

    def out_of_reach_of(self, other: _Place) -> bool:
        """Whether no robot gets here from an earlier place."""
        seconds = (self.stamp_ns - other.stamp_ns) * 1e-9
        return math.dist(self.position, other.position) > MAX_SPEED * seconds


class ScaleEstimator:
    """The factor from model units to metres, by its source.

    - ``none``: there is none; never settled, `scale` is 1.
    - ``fixed``: the given `scale`, settled from the start.
    - ``odometry``: from a path known in both worlds. Knots are laid along it, and the scale is the
      repeated median over the knots of the ratios of the distances between them, which single
      glitches do not move. It settles when the path's two halves, and the short steps alone (which
      a slip of the wheels does not stretch), have agreed on it for a while, or when they roughly do
      on a path so long that more of it would tell no better. It is then held: a scale that went on
      moving would make everything published in metres drift. A pose that lies further away than any
      robot moves is left out; where the next one is there too, a new path begins, since distances
      across the jump mean nothing.
    """

    def __init__(self, source: str = "none", scale: float = 1.0):
        if source not in SOURCES:
            raise ConfigurationError(
                f"scale_source must be one of {', '.join(SOURCES)}, not '{source}'"
            )
        if source == "fixed" and not (scale > 0 and math.isfinite(scale)):
            raise ConfigurationError(f"scale must be a positive number, not {scale}")
        self.source = source
        self.scale = scale if source == "fixed" else 1.0
        """Metres per model unit: the best guess so far, final once `settled`."""
        self.settled = source == "fixed"
        """Whether the scale is known, for odometry within about 3 % and what it `differs` by."""
        self.differs = 0.0
        """Largest relative difference of the scales of parts of the path, once settled."""
        self.missing = "no odometry matched an image yet" if source == "odometry" else ""
        """Why odometry has not settled the scale yet, in words; empty once it has."""
        self._spacing = KNOT_SPACING
        self._knots: list[NDArray[np.float64]] = []
        self._length = 0.0
        self._agreed_at: float | None = None
        self._ended = False
        self._last: _Place | None = None
        self._stray: _Place | None = None

    def add(
        self, model_T: NDArray[np.float64], metric_T: NDArray[np.float64], stamp_ns: int
    ) -> None:
        """Take in where one and the same point of the robot is in both worlds.

        `model_T` [4, 4] is in model units in a world without jumps (the odometry's), `metric_T`
        [4, 4] in metres; only the positions count, so the worlds may be turned and shifted against
        each other. Poses that are not finite, and stamps that do not rise, are left out. Without
        effect unless the source is ``odometry``, and once the scale has settled.
        """
        if self.source != "odometry" or self.settled:
            return
        knot = np.concatenate((model_T[:3, 3], metric_T[:3, 3]))
        if not np.isfinite(knot).all():
            return
        here = _Place(stamp_ns, knot[3:])
        newest = self._stray or self._last
        if newest is not None and stamp_ns <= newest.stamp_ns:
            return
        if self._last is not None and here.out_of_reach_of(self._last):
            if self._stray is None or here.out_of_reach_of(self._stray):
                self._stray = here
                return
            self._knots, self._spacing = [], KNOT_SPACING
            self._length, self._agreed_at = 0.0, None
        self._last, self._stray = here, None
        if self._knots:
            step = math.dist(knot[3:], self._knots[-1][3:])
            if step < self._spacing:
                return
            self._length += step
        self._knots.append(knot)
        self._estimate()
        if len(self._knots) == MAX_KNOTS:
            self._knots = self._knots[::2]
            self._spacing *= 2

    def conclude(self) -> None:
        """Settle by what is known of a path that has ended, as if it were a long one."""
        if self.source == "odometry" and not self.settled and self._knots:
            self._ended = True
            self._estimate()

    def _estimate(self) -> None:
        knots = np.array(self._knots)
        extent = np.linalg.norm(knots[:, None, 3:] - knots[None, :, 3:], axis=-1).max()
        if extent < MIN_EXTENT:
            self.missing = f"the robot moved {extent:.1f} m of the {MIN_EXTENT:g} m needed"
            return
        if len(knots) < FIRST_KNOTS:
            self.missing = self._too_few(len(knots))
            return
        scale = _repeated_median(knots)
        half = len(knots) // 2
        if not math.isfinite(scale):
            self.missing = "the model sees no motion"
            return
        opinions = {
            "first half": _repeated_median(knots[:half]),
            "second half": _repeated_median(knots[half:]),
            "short steps": _median_of_steps(knots),
        }
        self.scale = scale
        apart = {name: abs(math.log(other / scale)) for name, other in opinions.items()}
        self._judge(apart, len(knots))

    def _judge(self, apart: dict[str, float], count: int) -> None:
        """Settle the scale, or say what is missing, by the opinions' differences from it."""
        length = self._length
        disagreement = _disagreement(apart, length)
        if disagreement:
            self._agreed_at = None
        elif self._agreed_at is None:
            self._agreed_at = length
        steady = self._agreed_at is not None and self._agreed_at <= STEADY * length
        drifts = (length >= LONG or self._ended) and all(by < DRIFT for by in apart.values())
        self.missing = ""
        if count < MIN_KNOTS:
            self.missing = self._too_few(count)
        elif not steady and not drifts:
            self.missing = disagreement or (
                f"the scales along the path agree for less than {1 - STEADY:.0%} of it yet"
            )
        self.settled = not self.missing
        self.differs = max(apart.values()) if self.settled else 0.0

    def _too_few(self, count: int) -> str:
        return (
            f"the path has {count} of the {MIN_KNOTS} places needed, which lie "
            f"{self._spacing:g} m apart or further"
        )


def _disagreement(apart: dict[str, float], length: float) -> str:
    """Say which parts of a path of so many metres disagree with its scale, and by how much."""
    # what the model saw no motion in has no number
    said = [
        f"{name} by {f'{100 * by:.1f}' if by < 1 else 'over 100'} %"
        for name, by in apart.items()
        if not by < AGREEMENT
    ]
    if not said:
        return ""
    return (
        f"the scales along the path disagree with that of all of it: {', '.join(said)} "
        f"(less than {100 * AGREEMENT:g} % is needed, {100 * DRIFT:g} % once the path is "
        f"{LONG:g} m long, of which it has {length:.1f} m)"
    )


def _repeated_median(knots: NDArray[np.float64]) -> float:
    """Median over knots [N, 6] of each knot's median ratio of metric to model distances."""
    apart = knots[:, None] - knots[None]
    model = np.linalg.norm(apart[..., :3], axis=-1)
    metric = np.linalg.norm(apart[..., 3:], axis=-1)
    usable = (metric > MIN_BASELINE * metric.max()) & (model > 0)
    if not usable.any():
        return math.nan
    ratios = np.divide(metric, model, out=np.full_like(metric, np.nan), where=usable)
    return float(np.nanmedian(np.nanmedian(ratios[usable.any(1)], axis=1)))


def _median_of_steps(knots: NDArray[np.float64]) -> float:
    """Median ratio of metric to model distances of knots [N, 6] a few places apart."""
    steps = knots[STEP:] - knots[:-STEP]
    model = np.linalg.norm(steps[:, :3], axis=-1)
    metric = np.linalg.norm(steps[:, 3:], axis=-1)
    return float(np.median(metric / np.maximum(model, np.finfo(np.float64).tiny)))
