# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Robust Sim(3) between two worlds that saw the same keyframes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.geometry.poses import nearest_rotation, rotation_angle
from lingbot_map_ros.geometry.sim3 import AlignmentError, Sim3

CONFIDENCE_PERCENTILE = 30
"""Depth at or below this percentile of its frame's confidence says nothing about scale."""
FAR_PERCENTILE = 90
"""Depth above this percentile of its frame is the least certain and says nothing about scale."""
MIN_PIXELS = 16
"""Fewest shared depth pixels that give a frame a scale."""
MAX_PIXELS = 20_000
"""Depth is thinned to this many pixels a keyframe: more cost time and add nothing to a median."""
REJECTION_SIGMAS = 3.0
REJECTION_FLOOR = 0.06
"""A keyframe that agrees within this fraction of the scene's depth is never rejected. A trained
network's good votes differ by 1 to 5 %; to reject one of so few costs more than it can do harm."""
SOFTNESS = 0.06
"""Disagreement, as a fraction of the scene's depth, at which a vote counts a quarter."""
CUTOFF = 0.3
"""Disagreement from which a vote does not count at all."""
ITERATIONS = 5
SIGMA_OF_MAD = 1.4826


@dataclass(frozen=True, eq=False)
class KeyframeView:
    """A keyframe as one world sees it: pose T [4, 4], depth and confidence [H, W] or None."""

    T: NDArray[np.float64]
    depth: NDArray[np.float32] | None
    confidence: NDArray[np.float32] | None


@dataclass(frozen=True)
class AlignmentQuality:
    """How well the shared keyframes agree on a transform; residuals are over the inliers."""

    shared: int
    inliers: tuple[int, ...]
    """Which of the shared keyframes took part, by their order."""
    scale_spread: float
    """Relative standard deviation of the keyframes' own scales."""
    rotation_rms: float
    """Radians."""
    translation_rms: float
    """Units of the reference world."""
    scene_depth: float
    """Median depth of the shared keyframes in units of the reference world."""

    @property
    def inlier_ratio(self) -> float:
        """Share of the shared keyframes that agreed."""
        return len(self.inliers) / self.shared

    @property
    def relative_error(self) -> float:
        """Shift of the scene that the residuals amount to, as a fraction of its depth."""
        return self.scale_spread + self.rotation_rms + self.translation_rms / self.scene_depth


def align_keyframes(
    reference: Sequence[KeyframeView], current: Sequence[KeyframeView]
) -> tuple[Sim3, AlignmentQuality]:
    """Fit the Sim(3) that moves the current world onto the reference world.

    `reference[i]` and `current[i]` show the same image. Each keyframe votes: for the scale by the
    median ratio of its confident, finite, not-farthest depth; for rotation and translation by its
    two poses. The vote closest to the others (least median of residuals) decides which keyframes
    agree; from the mean over those the transform is found as a mean in which votes count the less
    the more they disagree with it, so that an outlier does not move it and a doubtful vote neither
    rules nor is lost. From four shared keyframes on one outlier is always in the minority.

    Raises AlignmentError if no keyframe has finite poses, or none has usable depth in both worlds.
    """
    reference, current = [_thinned(v) for v in reference], [_thinned(v) for v in current]
    usable = [
        i
        for i, (a, b) in enumerate(zip(reference, current, strict=True))
        if np.isfinite(a.T).all() and np.isfinite(b.T).all()
    ]
    log_scales = np.array([_log_scale(reference[i], current[i]) for i in usable])
    if not np.isfinite(log_scales).any():
        raise AlignmentError(
            f"no shared keyframe (of {len(reference)}) has finite poses and {MIN_PIXELS} pixels "
            "of confident depth in both windows; a new segment must start"
        )
    scene_depth = float(np.nanmedian([_typical_depth(reference[i].depth) for i in usable]))
    votes = _Votes(
        np.array([reference[i].T for i in usable]),
        np.array([current[i].T for i in usable]),
        log_scales,
        scene_depth,
    )
    fit = votes.fit(votes.consensus().astype(np.float64))
    for _ in range(ITERATIONS):
        fit = votes.fit(votes.weights(fit))
    inliers = votes.agreeing(fit)
    scale_error, rotation_error, translation_error = (e[inliers] for e in votes.residuals(fit))
    quality = AlignmentQuality(
        shared=len(reference),
        inliers=tuple(usable[i] for i in np.flatnonzero(inliers)),
        scale_spread=_rms(scale_error),
        rotation_rms=_rms(rotation_error),
        translation_rms=_rms(translation_error),
        scene_depth=scene_depth,
    )
    return fit, quality


class _Votes:
    """The shared keyframes' opinions on the transform from the current to the reference world."""

    def __init__(self, reference: NDArray, current: NDArray, log_scales: NDArray, depth: float):
        self.c_ref, self.c_cur = reference[:, :3, 3], current[:, :3, 3]
        self.R = nearest_rotation(reference[:, :3, :3] @ current[:, :3, :3].swapaxes(-1, -2))
        self.log_scales = log_scales
        self.depth = depth

    def residuals(self, fit: Sim3) -> tuple[NDArray, NDArray, NDArray]:
        """Scale (log, 0 where a keyframe has none), rotation (rad), translation, of each [N]."""
        scale = np.nan_to_num(np.abs(self.log_scales - math.log(fit.scale)))
        rotation = rotation_angle(self.R @ fit.R.T)
        translation = np.linalg.norm(self.c_ref - fit.apply(self.c_cur), axis=-1)
        return scale, rotation, translation

    def disagreement(self, fit: Sim3) -> NDArray:
        """Shift of the scene, as a fraction of its depth, between each vote and a fit [N]."""
        scale, rotation, translation = self.residuals(fit)
        return scale + rotation + translation / self.depth

    def agreeing(self, fit: Sim3) -> NDArray:
        """Mask of the keyframes that agree with a fit."""
        disagreement = self.disagreement(fit)
        centre = np.median(disagreement)
        sigma = SIGMA_OF_MAD * np.median(np.abs(disagreement - centre))
        return disagreement <= max(centre + REJECTION_SIGMAS * sigma, REJECTION_FLOOR)

    def consensus(self) -> NDArray:
        """Mask of the keyframes that agree with the vote closest to the others."""
        scale = math.exp(np.nanmedian(self.log_scales))
        fits = [
            Sim3(scale, R, c_ref - scale * R @ c_cur)
            for R, c_ref, c_cur in zip(self.R, self.c_ref, self.c_cur, strict=True)
        ]
        best = min(fits, key=lambda fit: float(np.median(self.disagreement(fit))))
        return self.agreeing(best)

    def weights(self, fit: Sim3) -> NDArray[np.float64]:
        """How much each vote counts [N], by its disagreement with a fit; one always does."""
        disagreement = self.disagreement(fit)
        weights = (1 + (disagreement / SOFTNESS) ** 2) ** -2.0
        return np.where(disagreement < max(CUTOFF, 2 * disagreement.min()), weights, 0.0)

    def fit(self, weights: NDArray[np.float64]) -> Sim3:
        """Mean of the votes with weights [N]."""
        known = np.isfinite(self.log_scales) & (weights > 0)
        if known.any():
            scale = math.exp(np.average(self.log_scales[known], weights=weights[known]))
        else:
            scale = math.exp(np.nanmedian(self.log_scales))
        R = nearest_rotation(np.average(self.R, axis=0, weights=weights))
        t = np.average(self.c_ref - scale * self.c_cur @ R.T, axis=0, weights=weights)
        return Sim3(scale, R, t)


def _thinned(view: KeyframeView) -> KeyframeView:
    if view.depth is None or view.depth.size <= MAX_PIXELS:
        return view
    every = math.ceil(math.sqrt(view.depth.size / MAX_PIXELS))
    confidence = None if view.confidence is None else view.confidence[::every, ::every]
    return KeyframeView(view.T, view.depth[::every, ::every], confidence)


def _log_scale(reference: KeyframeView, current: KeyframeView) -> float:
    """Log of the factor from current to reference depth; NaN without enough usable pixels."""
    if reference.depth is None or current.depth is None:
        return math.nan
    trusted = _trusted(reference.depth, reference.confidence)
    trusted &= _trusted(current.depth, current.confidence)
    if trusted.sum() < MIN_PIXELS:
        return math.nan
    return math.log(np.median(reference.depth[trusted].astype(np.float64) / current.depth[trusted]))


def _trusted(depth: NDArray, confidence: NDArray | None) -> NDArray[np.bool_]:
    """Mask of finite, positive, confident and not-farthest depth."""
    valid = np.isfinite(depth) & (depth > 1e-6)
    if not valid.any():
        return valid
    trusted = valid & (depth <= np.percentile(depth[valid], FAR_PERCENTILE))
    if confidence is not None:
        confidence = np.nan_to_num(confidence, nan=-np.inf)
        limit = np.percentile(confidence[valid], CONFIDENCE_PERCENTILE)
        if limit < confidence[valid].max():
            trusted &= confidence > limit
    return trusted


def _typical_depth(depth: NDArray | None) -> float:
    if depth is None:
        return math.nan
    valid = depth[np.isfinite(depth) & (depth > 0)]
    return float(np.median(valid)) if len(valid) else math.nan


def _rms(errors: NDArray) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))
