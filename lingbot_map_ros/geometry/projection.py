# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Between pixels and points of a pinhole camera without skew.

Depth is z along the optical axis; pixel (u, v) = (column, row) has its centre at integers.
Functions take numpy arrays or torch tensors and answer in kind, in the dtype of their first
argument.
"""

from __future__ import annotations

import numpy as np

from lingbot_map_ros.geometry.arrays import Array, namespace
from lingbot_map_ros.geometry.poses import invert

MIN_DEPTH = 1e-6
"""Smallest depth that counts as in front of a camera."""


@np.errstate(invalid="ignore")
def unproject(depth: Array, K: Array, stride: int = 1) -> Array:
    """Lift every `stride`-th row and column of depth [..., H, W] to camera points [..., h, w, 3].

    `K` [..., 3, 3] belongs to the full image. Invalid depth (NaN, infinite) stays in the points.
    """
    xp, depth = namespace(depth, None)
    _, K = namespace(K)
    v, u = _pixels(depth, stride)
    z = depth[..., ::stride, ::stride]
    x = (u - _entry(K, 0, 2, depth)) / _entry(K, 0, 0, depth) * z
    y = (v - _entry(K, 1, 2, depth)) / _entry(K, 1, 1, depth) * z
    return xp.stack((x, y, z), -1)


@np.errstate(invalid="ignore", over="ignore")
def project(points: Array, K: Array) -> Array:
    """Project camera points [..., 3] to pixels (u, v) [..., 2] with K [3, 3], or one K each.

    z is clamped to `MIN_DEPTH`, so points behind the camera give finite, meaningless pixels:
    check z first.
    """
    xp, points = namespace(points, None)
    _, K = namespace(K)
    z = points[..., 2].clip(MIN_DEPTH)
    u = K[..., 0, 0] * points[..., 0] / z + K[..., 0, 2]
    v = K[..., 1, 1] * points[..., 1] / z + K[..., 1, 2]
    return xp.stack((u, v), -1)


@np.errstate(invalid="ignore")
def transform_points(T: Array, points: Array) -> Array:
    """Apply T [..., 4, 4] to points [..., N, 3] of the same leading axes."""
    _, points = namespace(points, None)
    _, T = namespace(T)
    return points @ T[..., :3, :3].swapaxes(-1, -2) + T[..., None, :3, 3]


def mean_induced_flow(
    depth: Array, K: Array, T: Array, keyframe_K: Array, keyframe_T: Array, stride: int = 8
) -> float:
    """Mean image motion in pixels of the current frame's points against a keyframe's camera.

    Every `stride`-th pixel of `depth` [..., H, W] is lifted with `K` [..., 3, 3] and the
    camera-to-world pose `T` [..., 4, 4], projected into the keyframe's camera, and compared with
    where it was; leading axes are averaged over. Pixels without depth, or behind the keyframe's
    camera, do not count; 0 if none counts.
    """
    xp, depth = namespace(depth, None)
    points = unproject(depth, K, stride)
    flat = points.reshape((*points.shape[:-3], -1, 3))
    to_keyframe = invert(keyframe_T) @ namespace(T)[1]
    seen = transform_points(to_keyframe, flat).reshape(points.shape)
    valid = xp.isfinite(points[..., 2]) & (points[..., 2] > MIN_DEPTH) & (seen[..., 2] > MIN_DEPTH)
    v, u = _pixels(depth, stride)
    there = project(seen, namespace(keyframe_K)[1][..., None, None, :, :])
    distance = xp.sqrt((there[..., 0] - u) ** 2 + (there[..., 1] - v) ** 2)[valid]
    return float(distance.mean()) if len(distance) else 0.0


def _pixels(depth: Array, stride: int) -> tuple[Array, Array]:
    """Rows [h, 1] and columns [w] of every `stride`-th pixel, in the dtype of depth."""
    xp, _ = namespace(depth, None)
    H, W = depth.shape[-2:]
    where = {} if xp is np else {"device": depth.device}
    rows = xp.arange(0, H, stride, dtype=depth.dtype, **where)
    columns = xp.arange(0, W, stride, dtype=depth.dtype, **where)
    return rows[:, None], columns


def _entry(K: Array, row: int, column: int, like: Array) -> Array:
    """K's entry, shaped to broadcast over an image and in the dtype of `like`."""
    entry = K[..., row, column][..., None, None]
    return entry.astype(like.dtype) if isinstance(entry, np.ndarray) else entry.to(like)
