# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Similarity transforms, and the least-squares one between two sets of points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lingbot_map_ros.errors import LingbotMapError


class AlignmentError(LingbotMapError):
    """Two worlds share too little to tell how one lies in the other."""


@dataclass(frozen=True, eq=False)
class Sim3:
    """The map x -> scale * R @ x + t, with a proper rotation R [3, 3], t [3] and scale > 0."""

    scale: float
    R: NDArray[np.float64]
    t: NDArray[np.float64]

    def apply(self, points: ArrayLike) -> NDArray[np.float64]:
        """Move points [..., 3]."""
        return self.scale * np.asarray(points, np.float64) @ self.R.T + self.t

    def apply_pose(self, T: ArrayLike) -> NDArray[np.float64]:
        """Move camera-to-world poses [..., 4, 4]; they stay rigid, depth must be scaled apart."""
        moved = np.array(T, np.float64)
        moved[..., :3, 3] = self.apply(moved[..., :3, 3])
        moved[..., :3, :3] = self.R @ moved[..., :3, :3]
        return moved

    def compose(self, other: Sim3) -> Sim3:
        """Return the transform that applies `other` first, then this one."""
        return Sim3(self.scale * other.scale, self.R @ other.R, self.apply(other.t))

    def inverse(self) -> Sim3:
        """Return the transform that undoes this one."""
        return Sim3(1 / self.scale, self.R.T, -(self.R.T @ self.t) / self.scale)


IDENTITY = Sim3(1.0, np.eye(3), np.zeros(3))
"""The transform that changes nothing."""


def umeyama(
    src: ArrayLike, dst: ArrayLike, weights: ArrayLike | None = None, with_scale: bool = True
) -> Sim3:
    """Least-squares Sim(3), or SE(3) without scale, that moves points src [N, 3] onto dst [N, 3].

    The rotation is always proper, also for mirrored data. Raises AlignmentError if the points lie
    on a line, so that any turn about it would fit.
    """
    x, y = np.asarray(src, np.float64), np.asarray(dst, np.float64)
    w = np.ones(len(x)) if weights is None else np.asarray(weights, np.float64)
    w = w / w.sum()
    mean_x, mean_y = w @ x, w @ y
    dx, dy = x - mean_x, y - mean_y
    covariance = (dy * w[:, None]).T @ dx
    U, D, Vt = np.linalg.svd(covariance)
    if not D[1] > 1e-12 * D[0]:
        raise AlignmentError(
            f"points on a line, or fewer than three ({len(x)}), leave the rotation open; "
            "align over a path with a turn"
        )
    sign = np.array([1, 1, np.sign(np.linalg.det(U @ Vt))])
    R = (U * sign) @ Vt
    scale = float(D @ sign / (w @ (dx * dx).sum(-1))) if with_scale else 1.0
    return Sim3(scale, R, mean_y - scale * R @ mean_x)
