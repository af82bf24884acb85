# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Robot-like camera motion: speed and yaw-rate profiles, integrated, with a camera that wobbles.

The world frame follows REP-103 (x and y on the floor, z up, metres).  A path is planned without
looking at any world; the world is built around it, which keeps every path free of collisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("drive", "loop", "rotate", "handheld", "corridor", "mixed")
SUBSTEPS = 8
MIN_LOOP_SECONDS = 11.9
MAX_YAW_RATE = math.radians(30.0)

Array = NDArray[Any]


@dataclass(frozen=True)
class Path:
    """A camera path sampled finely in time.

    Attributes
    ----------
    times:
        [n] seconds; frame k of the sequence is at ``k / fps``.
    position:
        [n,3] camera centre in the world frame, metres.
    angles:
        [n,3] yaw (left positive), pitch (down positive), roll, radians, unwrapped.
    """

    times: Array
    position: Array
    angles: Array

    def poses(self, times: Array) -> Array:
        """Camera-to-world poses [...,4,4] (OpenCV optical axes) at times [...] in seconds."""
        at = np.clip(times, self.times[0], self.times[-1])
        position = np.stack([np.interp(at, self.times, c) for c in self.position.T], -1)
        angles = np.stack([np.interp(at, self.times, c) for c in self.angles.T], -1)
        pose = np.zeros((*np.shape(at), 4, 4))
        pose[..., :3, :3] = optical_rotation(angles)
        pose[..., :3, 3] = position
        pose[..., 3, 3] = 1.0
        return pose


def optical_rotation(angles: Array) -> Array:
    """Rotation [...,3,3] of the optical axes in the world for yaw, pitch (down), roll [...,3]."""
    (cy, cp, cr), (sy, sp, sr) = (np.moveaxis(f(angles), -1, 0) for f in (np.cos, np.sin))
    forward = np.stack([cy * cp, sy * cp, -sp], -1)
    left = np.stack([cy * sp * sr - sy * cr, sy * sp * sr + cy * cr, cp * sr], -1)
    up = np.cross(forward, left)
    return np.stack([-left, -up, forward], -1)


def plan_path(
    rng: np.random.Generator, kind: str, frames: int, fps: float, difficulty: float
) -> Path:
    """Plan a path of ``frames`` frames.

    Difficulty 0 is slow and steady, 1 reaches 1 m/s and 30 degrees of yaw a second.
    """
    dt = 1.0 / (fps * SUBSTEPS)
    count = frames * SUBSTEPS + 1
    times = np.arange(count) * dt
    limit_v = 0.35 + 0.65 * difficulty
    limit_w = MAX_YAW_RATE * (0.2 + 0.8 * difficulty)
    if kind == "corridor":
        speed, yaw = _corridor(rng, times, limit_v, limit_w)
    elif kind == "loop":
        speed, yaw = _loop(rng, times, (frames - 1) / fps, limit_v, limit_w)
    else:
        speed, rate = _drive(rng, times, limit_v, limit_w)
        if kind in ("rotate", "mixed"):
            speed, rate = _insert_turns(rng, times, speed, rate, limit_w, kind == "rotate")
        yaw = rng.uniform(-math.pi, math.pi) + _integrate(rate, dt)
    return _mount_camera(rng, times, speed, yaw, kind, difficulty)


def _integrate(rate: Array, dt: float) -> Array:
    return np.concatenate([np.zeros(1), np.cumsum(0.5 * (rate[1:] + rate[:-1]) * dt)])


def _smooth(values: Array, times: Array, seconds: float) -> Array:
    width = max(1, round(seconds / (times[1] - times[0])))
    padded = np.pad(values, (width, width), mode="edge")
    return np.convolve(padded, np.full(width, 1.0 / width), mode="same")[width:-width]


def _knots(
    rng: np.random.Generator, times: Array, spacing: float, draw: Callable[[int], Array]
) -> Array:
    """Values drawn at irregular knots about ``spacing`` seconds apart, joined by lines."""
    count = int(times[-1] / spacing) + 3
    at = np.cumsum(rng.uniform(0.6, 1.4, count) * spacing) - rng.uniform(0.6, 1.4) * spacing
    return np.interp(times, at, draw(count))


def _stops(rng: np.random.Generator, times: Array, every: float) -> Array:
    """A factor in [0,1] that is zero while the robot stands, about once in ``every`` seconds."""
    factor = np.ones_like(times)
    for start in np.cumsum(rng.exponential(every, int(3 * times[-1] / every) + 1)):
        factor[(times >= start) & (times < start + rng.uniform(0.4, 1.5))] = 0.0
    return _smooth(factor, times, 0.5)


def _drive(
    rng: np.random.Generator, times: Array, limit_v: float, limit_w: float
) -> tuple[Array, Array]:
    speed = _knots(rng, times, 1.5, lambda n: rng.uniform(0.4, 1.0, n) * limit_v)

    def turns(n: int) -> Array:
        straight = rng.random(n) < 0.35
        size = rng.uniform(0.3, 1.0, n) * rng.choice([-1.0, 1.0], n)
        return np.where(straight, 0.0, size) * limit_w

    rate = _smooth(_knots(rng, times, 1.2, turns), times, 0.4)
    return speed * _stops(rng, times, 12.0), rate


def _insert_turns(
    rng: np.random.Generator, times: Array, speed: Array, rate: Array, limit_w: float, mostly: bool
) -> tuple[Array, Array]:
    """Turn on the spot for a while, several times."""
    turning = np.zeros_like(times)
    spin = np.zeros_like(times)
    start = rng.uniform(0.0, 1.0) if mostly else rng.uniform(0.0, 4.0)
    while start < times[-1]:
        length = rng.uniform(3.0, 8.0) if mostly else rng.uniform(1.0, 3.5)
        inside = (times >= start) & (times < start + length)
        turning[inside] = 1.0
        spin[inside] = rng.uniform(0.5, 1.0) * limit_w * rng.choice([-1.0, 1.0])
        start += length + (rng.uniform(0.6, 1.5) if mostly else rng.uniform(2.0, 5.0))
    turning = _smooth(turning, times, 0.5)
    creep = rng.uniform(0.0, 0.06) if mostly else 0.0
    blended = (1 - turning) * rate + _smooth(spin, times, 0.5)
    return (1 - turning) * speed + creep, np.clip(blended, -limit_w, limit_w)


def _corridor(
    rng: np.random.Generator, times: Array, limit_v: float, limit_w: float
) -> tuple[Array, Array]:
    """Straight along a corridor with a slight weave; after some metres a right-angled bend."""
    speed = _knots(rng, times, 2.0, lambda n: rng.uniform(0.6, 1.0, n) * limit_v)
    speed = speed * _stops(rng, times, 15.0)
    period, phase = rng.uniform(3.0, 6.0), rng.uniform(0.0, 2 * math.pi)
    weave = min(0.07, 0.12 * limit_w)
    yaw = rng.integers(4) * math.pi / 2 + weave * np.sin(2 * math.pi * times / period + phase)
    start, duration = rng.uniform(1.0, 7.0), rng.uniform(1.25, 1.6) * math.pi / (2 * limit_w)
    ramp = np.clip((times - start) / duration, 0.0, 1.0)
    yaw = yaw + rng.choice([-1.0, 0.0, 1.0]) * math.pi / 2 * _smooth(ramp, times, 0.5)
    return speed, yaw


def _loop(
    rng: np.random.Generator, times: Array, length: float, limit_v: float, limit_w: float
) -> tuple[Array, Array]:
    """A closed convex curve: the second half repeats the first, turned by 180 degrees.

    A clip shorter than a whole loop takes its beginning.
    """
    length = max(length, MIN_LOOP_SECONDS)
    phase = (times / length * 2.0) % 1.0
    mean = 2 * math.pi / length
    depth = min(0.85, max(0.0, limit_w / mean - 1.0))
    order = int(rng.integers(1, 4))
    wave, shift = 2 * math.pi * order, rng.uniform(0, 2 * math.pi)
    # The integral of mean * (1 + depth * cos(wave * phase + shift)).
    turned = mean * times + depth * mean * length / (2 * wave) * (
        np.sin(2 * wave * times / length + shift) - math.sin(shift)
    )
    cruise = limit_v * rng.uniform(0.7, 0.85)
    speed = cruise * (1 + 0.18 * np.sin(2 * math.pi * (phase + rng.random())))
    yaw = rng.uniform(-math.pi, math.pi) + rng.choice([-1.0, 1.0]) * turned
    return speed, yaw


def _mount_camera(
    rng: np.random.Generator, times: Array, speed: Array, yaw: Array, kind: str, difficulty: float
) -> Path:
    """Integrate the base and put the camera on it, with the wobble of wheels or of a hand."""
    hand = kind == "handheld"
    dt = times[1] - times[0]
    look = np.zeros_like(times)
    heading = yaw
    if hand:
        scan = rng.uniform(0.05, 0.3) * difficulty
        look = _smooth(_knots(rng, times, 2.0, lambda n: rng.uniform(-scan, scan, n)), times, 0.8)
        heading = yaw + rng.normal(0.0, 0.15)
    base = np.stack([_integrate(speed * f(heading), dt) for f in (np.cos, np.sin)], -1)
    ahead = 0.0 if hand else rng.uniform(0.0, 0.25)
    height = rng.uniform(1.2, 1.65) if hand else rng.uniform(0.25, 1.2)
    tilt = rng.uniform(-0.05, 0.15)

    def wobble(size: float) -> Array:
        bands = [(rng.uniform(lo, hi), rng.uniform(0, 2 * math.pi)) for lo, hi in _WOBBLE_BANDS]
        waves = [np.sin(2 * math.pi * f * times + p) / (1 + f) for f, p in bands]
        return size * np.sum(waves, 0)

    metres, radians = (0.035, 0.02) if hand else (0.002, 0.005)
    sizes = difficulty * np.array([metres] * 3 + [radians] * 3)
    sway = np.stack([wobble(s) for s in sizes], -1)
    direction = np.stack([np.cos(yaw), np.sin(yaw)], -1)
    position = np.column_stack([base + ahead * direction, np.full_like(times, height)])
    angles = np.stack([yaw + look, np.full_like(times, tilt), np.zeros_like(times)], -1)
    return Path(times, position + sway[:, :3], angles + sway[:, 3:])


_WOBBLE_BANDS = ((0.2, 0.6), (0.6, 1.2), (1.4, 2.4))
