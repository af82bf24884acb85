# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whether two frames show one scene: an image, seen through the geometry that the network gave.

A network that is shown another place does not say so: it goes on from its last pose, with familiar
depth and confidence. The images tell. If pose and depth are right, each pixel of a frame has its
place in the frame before, and small blocks of the two correlate whatever the exposure. A pose that
is off by some degrees shifts all of them, so where they do not correlate they may all be shifted
alike. Between different scenes, or to noise, they correlate by chance only, however shifted. Where
they correlate both frames must also say the same of the depth: if they do not, the network's unit
has jumped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.geometry.poses import invert
from lingbot_map_ros.geometry.projection import MIN_DEPTH
from lingbot_map_ros.streaming.observation import Observation

BLOCK = 10
"""Side of a block in pixels of the thumbnails."""
MIN_BLOCKS = 10
"""Blocks with texture, seen by both frames, that a judgement needs."""
MIN_OVERLAP = 0.6
"""Share of a block that the other frame must see."""
MIN_CONTRAST = 2.0
"""Grey levels (standard deviation) of a block with texture."""
GREY = 128.0
"""Grey level that images are compared from."""
PLAIN = 0.1
"""Grey levels (standard deviation) that both blocks must exceed to agree: less may be rounding."""
MATCH = 0.5
"""Correlation of a block that agrees; one in thirty blocks of unrelated images reaches it."""
CLEAR = 0.5
"""Share of agreeing blocks that needs no shift."""
SHIFTS = np.array([(x, y) for y in range(-4, 5, 2) for x in range(-8, 9, 2) if (x, y) != (0, 0)])
"""Columns and rows of the thumbnail, [S, 2]: up to a ninth of its width, for errors of the pose."""
LIKELY = 3
"""Of these so many are tried on all pixels, after a look at every other one."""
MAX_FLOW = 0.5
"""Of the image's width: what has moved further is half out of view, and little can be said of it.
Shown noise or another room, the small model answers with flow of up to 0.54. With 0.25 it hid some
of them, and withheld as many good frames of the hardest motion, two to ten images a second."""


@dataclass(frozen=True)
class Comparison:
    """What a frame and the one before it say of each other."""

    agreement: float
    """Share of the blocks, 0 to 1, that show the same."""
    log_scale: float | None
    """Log of the factor between what the two say of the depth where they show the same; None if
    one has no depth, or too few blocks agree."""


def compare(last: Observation, frame: Observation, max_flow: float = MAX_FLOW) -> Comparison | None:
    """Compare a frame with the one before it; both observations are of one window.

    None where nothing can be said: neither frame has depth, too few blocks have texture and are
    seen by both, or the image moved by more than `max_flow` of its width between them.
    """
    seen, other = (frame, last) if frame.depth is not None else (last, frame)
    if seen.depth is None:
        return None
    stride = seen.frame.thumbnail_stride
    image, there = (o.frame.thumbnail - GREY for o in (seen, other))
    u, v, z = _places(seen, _thinned(seen.depth, stride, image.shape), other, stride)
    if _moved(u, v, max_flow * image.shape[1]):
        return None
    moments = _moments(_blocks(image))
    (found,) = _agreeing(moments, there, [(u, v)], z)
    if found is None:
        return None
    x, y = 0, 0
    if found.share < CLEAR:
        shifts = _likely_shifts(image, there, u, v, z)
        tries = _agreeing(moments, there, [(u + dx, v + dy) for dx, dy in shifts], z)
        for shift, shifted in zip(shifts, tries, strict=True):
            if shifted is not None and shifted.share > found.share:
                found, (x, y) = shifted, shift
    log_scale = None
    if other.depth is not None and np.count_nonzero(found.blocks) >= MIN_BLOCKS:
        theirs = _thinned(other.depth, stride, image.shape)
        said = cv2.remap(theirs, u + x, v + y, cv2.INTER_NEAREST)
        ratios = _blocks(z.clip(MIN_DEPTH) / said.clip(MIN_DEPTH))
        ratio = median(ratios[found.blocks][found.mask[found.blocks] > 0])
        log_scale = float(np.log(ratio))
    return Comparison(found.share, log_scale)


def median(values: NDArray[np.float32]) -> float:
    """Median of finite values; numpy's own takes several times as long."""
    flat = values.flatten()
    middle = len(flat) // 2
    flat.partition(middle)
    upper = flat[middle]
    return float(upper if len(flat) % 2 else (flat[:middle].max() + upper) / 2)


@dataclass(frozen=True)
class _Agreeing:
    share: float
    blocks: NDArray[np.bool_]
    """[N]"""
    mask: NDArray[np.float32]
    """[N, P], 1 where the other frame sees a pixel."""


def _places(
    seen: Observation, depth: NDArray[np.float32], other: Observation, stride: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Columns, rows and depth [h, w] of a thumbnail's pixels, of this depth, in the other's."""
    K = _reduced(seen.intrinsics, stride)
    x, y = (
        ((np.arange(n) - K[axis, 2]) / K[axis, axis]).astype(np.float32)
        for axis, n in enumerate(depth.shape[::-1])
    )
    # A point at depth * (x, y, 1) lies there at depth * R @ (x, y, 1) + t, up to the division.
    M = _reduced(other.intrinsics, stride) @ (invert(other.pose) @ seen.pose)[:3]
    X, Y, one, t = M.astype(np.float32).T[:, :, None, None]
    there = depth * (X * x + (Y * y[:, None] + one)) + t
    z = there[2]
    u, v = there[:2] / z.clip(MIN_DEPTH)
    return u, v, z


def _moved(u: NDArray[np.float32], v: NDArray[np.float32], limit: float) -> bool:
    """Whether the median pixel lies further than `limit` from where it was."""
    if limit == math.inf:
        return False
    rows, columns = (np.arange(n, dtype=np.float32) for n in u.shape)
    squared = (u - columns) ** 2 + (v - rows[:, None]) ** 2
    return 2 * np.count_nonzero(squared > limit**2) > squared.size


def _agreeing(
    moments: NDArray, there: NDArray, places: Sequence[tuple[NDArray, NDArray]], z: NDArray
) -> list[_Agreeing | None]:
    """Blocks that find themselves in the other thumbnail, in depth z, for each of ``places``.

    Those are columns and rows (u, v), each [h, w].
    """
    height, width = there.shape
    masks, warped = [], []
    for u, v in places:
        visible = (z > MIN_DEPTH) & (u >= 0) & (u <= width - 1) & (v >= 0) & (v <= height - 1)
        masks.append(_blocks(visible))
        warped.append(_blocks(cv2.remap(there, u, v, cv2.INTER_LINEAR)) * masks[-1])
    agreeing, usable = _correlate(moments, np.stack(warped, 1), np.stack(masks, 1))
    found: list[_Agreeing | None] = []
    for i, mask in enumerate(masks):
        count = np.count_nonzero(usable[:, i])
        share = np.count_nonzero(agreeing[:, i]) / max(count, 1)
        found.append(_Agreeing(share, agreeing[:, i], mask) if count >= MIN_BLOCKS else None)
    return found


def _likely_shifts(
    image: NDArray, there: NDArray, u: NDArray, v: NDArray, z: NDArray
) -> NDArray[np.float32]:
    """Shifts [LIKELY, 2] of (u, v) with which most blocks agree, as every other pixel tells."""
    # Around the image lies what is not in view: once for the shifts, once for all that is further.
    reach = int(np.abs(SHIFTS).max())
    height, width = (length + 4 * reach for length in there.shape)
    within = np.s_[2 * reach : height - 2 * reach, 2 * reach : width - 2 * reach]
    padded, inside = np.zeros((2, height, width), np.float32)
    padded[within], inside[within] = there, 1
    column, row = (np.rint(places[::2, ::2]) + 2 * reach for places in (u, v))
    near = (z[::2, ::2] > MIN_DEPTH) & (column >= reach) & (row >= reach)
    near &= (column < width - reach) & (row < height - reach)
    index = np.where(near, row * width + column, reach * width + reach)
    offsets = SHIFTS[:, 1] * width + SHIFTS[:, 0]
    side = BLOCK // 2
    places = offsets[:, None] + _blocks(index, side).astype(np.int64)[:, None]
    moments = _moments(_blocks(image[::2, ::2], side))
    agreeing, usable = _correlate(moments, padded.take(places), inside.take(places))
    count = usable.sum(0)
    share = np.where(count < MIN_BLOCKS, 0.0, agreeing.sum(0) / count.clip(1))
    return SHIFTS[np.argsort(-share, kind="stable")[:LIKELY]].astype(np.float32)


def _thinned(
    depth: NDArray[np.float32], stride: int, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Depth at the centres of a thumbnail's pixels."""
    half = stride // 2
    return np.ascontiguousarray(depth[half::stride, half::stride][: shape[0], : shape[1]])


def _reduced(K: NDArray[np.float64], stride: int) -> NDArray[np.float64]:
    """Intrinsics of a thumbnail whose pixels are means over `stride` x `stride` pixels."""
    reduced = K.copy()
    reduced[:2, 2] -= (stride - 1) / 2
    reduced[:2] /= stride
    return reduced


def _blocks(image: NDArray, side: int = BLOCK) -> NDArray[np.float32]:
    """Cut [H, W] into blocks [N, side * side]; what is left at the right and below goes."""
    rows, columns = (length // side for length in image.shape)
    whole = image[: rows * side, : columns * side].astype(np.float32)
    blocks = whole.reshape(rows, side, columns, side).swapaxes(1, 2)
    return blocks.reshape(rows * columns, side * side)


def _moments(a: NDArray) -> NDArray[np.float32]:
    """Powers 0, 1 and 2 [N, P, 3] of the pixels of blocks [N, P], less each block's mean."""
    a = a - a.mean(-1, keepdims=True)
    return np.stack((np.ones_like(a), a, a * a), axis=-1)


def _correlate(
    moments: NDArray, b: NDArray, mask: NDArray
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which blocks of `moments` [N, P, 3] and b [N, S, P] agree, and which can tell, each [N, S].

    Those can that have texture and are seen by both, where the mask is 1; b is 0 elsewhere. Means
    are near zero in both, so that the differences of their moments keep their digits.
    """
    count, sum_a, sum_aa = np.moveaxis(mask @ moments, -1, 0)
    sum_b, sum_ab = np.moveaxis(b @ moments[..., :2], -1, 0)
    sum_bb = np.einsum("nsp,nsp->ns", b, b)
    n = count.clip(1)
    variance_a, variance_b = sum_aa - sum_a**2 / n, sum_bb - sum_b**2 / n
    covariance = sum_ab - sum_a * sum_b / n
    usable = count > MIN_OVERLAP * b.shape[-1]
    usable &= np.maximum(variance_a, variance_b) > MIN_CONTRAST**2 * n
    agreeing = usable & (np.minimum(variance_a, variance_b) > PLAIN**2 * n)
    agreeing &= covariance > MATCH * np.sqrt((variance_a * variance_b).clip(0))
    return agreeing, usable
