# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Worlds whose looks say nothing about distance: objects of all sizes afloat around a camera path.

In rooms and maps depth can be guessed from what things look like, and a network that may guess does
not learn to triangulate. Here an object twice as far is twice as large, with a pattern twice as
coarse, at any tilt and without a floor: only motion tells how far it is.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from lingbot_map_ros.synthetic import world as w
from lingbot_map_ros.synthetic.imaging import sample_imaging
from lingbot_map_ros.synthetic.sequence import HORIZONTAL_FOV, TEXTURES, Shot
from lingbot_map_ros.synthetic.trajectory import Path, plan_path
from lingbot_map_ros.synthetic.world import World

# Not "rotate", which shows no parallax.
CLOUD_KINDS = ("drive", "loop", "handheld", "mixed", "corridor")
# How many times as far as in a room the camera moves, among things at the distances of a room.
_STRETCH = (1.5, 8.0)
_DISTANCE = (0.5, 9.0)  # metres from where it is seen
_ANGLE = (0.12, 0.55)  # half the size of an object, in distances
_TILES = (0.15, 1.2)  # size of a tile of texture, in distances
_ASIDE, _ABOVE = math.radians(50), math.radians(20)  # of where the camera looks
_CLEARANCE = 0.15
_SHELL = (1.0, 14.0)  # metres from the path to the background

Array = NDArray[np.float64]


def plan_cloud(
    rng: np.random.Generator, frames: int, difficulty: float, fps: float, photographs: int
) -> Shot:
    """Draw a path, a cloud of objects around it, and a camera; arguments as of ``plan_shot``."""
    kind = CLOUD_KINDS[rng.integers(len(CLOUD_KINDS))]
    path = plan_path(rng, kind, frames, fps, difficulty)
    path = replace(path, position=path.position * _log_uniform(rng, *_STRETCH))
    world = _build(rng, path, photographs)
    imaging = sample_imaging(rng, frames, fps, difficulty)
    return Shot(path, world, imaging, rng.uniform(*HORIZONTAL_FOV))


def _log_uniform(rng: np.random.Generator, low: float, high: float, size: object = None) -> Array:
    return np.exp(rng.uniform(math.log(low), math.log(high), size))  # type: ignore[call-overload]


def _build(rng: np.random.Generator, path: Path, photographs: int) -> World:
    world, count = World(), w.PRIMITIVES - 1
    w.dress(world, rng, TEXTURES, photographs, 1.0)
    # Of a normal distribution of quaternions every rotation is as likely as any other.
    world.rotation[:] = Rotation.from_quat(rng.normal(size=(w.PRIMITIVES, 4))).as_matrix()
    # Every step of it: in four of them a fast camera covers a metre, and might cross an object.
    track, angles = path.position, path.angles

    # Each object is in sight from some place on the path.
    seen_from = rng.integers(0, len(track), count)
    distance = _log_uniform(rng, *_DISTANCE, count)
    turn = angles[seen_from, 0] + rng.uniform(-_ASIDE, _ASIDE, count)
    rise = rng.normal(0, _ABOVE, count) - angles[seen_from, 1]
    away = [np.cos(turn) * np.cos(rise), np.sin(turn) * np.cos(rise), np.sin(rise)]
    world.centre[:-1] = track[seen_from] + distance[:, None] * np.stack(away, -1)
    nearest = np.linalg.norm(world.centre[:-1, None] - track, axis=-1).min(1)

    slim = rng.uniform(0.25, 1.0, (count, 3))
    slim[w.BOXES :, 1] = slim[w.BOXES :, 0]  # cylinders are round, and
    slim[w.BOXES + w.CYLINDERS :] = 1.0  # so are spheres.
    slim /= np.linalg.norm(slim, axis=-1, keepdims=True)
    reach = np.minimum(_log_uniform(rng, *_ANGLE, count) * distance, nearest - _CLEARANCE)
    # Where the path leads through the middle of an object there is none.
    world.half[:-1] = np.maximum(reach, 1e-3)[:, None] * slim

    axes = world.rotation[-1]
    low, high = (track @ axes).min(0), (track @ axes).max(0)
    low, high = low - _log_uniform(rng, *_SHELL, 3), high + _log_uniform(rng, *_SHELL, 3)
    world.centre[-1], world.half[-1] = axes @ (low + high) / 2, (high - low) / 2

    far = np.append(distance, world.half[-1].mean())[:, None]
    size = far * _log_uniform(rng, *_TILES, (w.PRIMITIVES, w.FACES))
    world.surfaces[..., w.BASE_FREQUENCY] = 1 / size
    world.surfaces[..., w.DETAIL_FREQUENCY] = 1 / (size * rng.uniform(0.15, 0.4, size.shape))
    world.surfaces[..., w.MACRO_FREQUENCY] = 1 / (size * rng.uniform(2.0, 6.0, size.shape))

    # Lamps lose strength with distance: let most of the light come from everywhere.
    world.light_position[:] = world.centre[-1] + rng.uniform(-1, 1, (w.LIGHTS, 3)) * world.half[-1]
    world.light_colour *= rng.uniform(0.0, 0.6)
    world.ambient *= rng.uniform(1.5, 2.5)
    return world
