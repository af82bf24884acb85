# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Collision-free camera tracks through a map, between its spawn points and items."""

import numpy as np
from openarena_render import MapScene
from scipy.ndimage import gaussian_filter1d

_EYE_HEIGHT = 0.7  # metres above the spawn point, which lies 0.6 m above the ground
_CLEARANCE = 0.45
_REACH = 30.0
_MOST_SKY, _NEAREST_MEDIAN = 0.5, 1.0


def _sphere_directions(count: int) -> np.ndarray:
    index = np.arange(count) + 0.5
    z = 1 - 2 * index / count
    angle = np.pi * (1 + 5**0.5) * index
    radius = np.sqrt(1 - z * z)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=-1)


def clearance(scene: MapScene, points: np.ndarray, directions: int = 26) -> np.ndarray:
    """Smallest distance ``[N]`` to a surface among some directions from each point ``[N, 3]``."""
    sphere = _sphere_directions(directions)
    origins = np.repeat(points, directions, axis=0)
    hits = scene.distance(origins, np.tile(sphere, (len(points), 1)))
    return hits.reshape(len(points), directions).min(1)


def _route(scene: MapScene, nodes: np.ndarray, rng: np.random.Generator, legs: int) -> np.ndarray:
    """Corner points of a walk over nodes that see each other."""
    route = [nodes[rng.integers(len(nodes))]]
    for _ in range(legs):
        offsets = nodes - route[-1]
        lengths = np.linalg.norm(offsets, axis=1)
        near = rng.permutation(np.flatnonzero((lengths > 3) & (lengths < _REACH)))[:16]
        near = near[[min(np.linalg.norm(nodes[i] - q) for q in route[-3:]) > 2 for i in near]]
        if not len(near):
            break
        directions = offsets[near] / lengths[near, None]
        free = scene.distance(np.broadcast_to(route[-1], directions.shape), directions)
        visible = near[free > lengths[near] + 0.3]
        if not len(visible):
            break
        route.append(nodes[visible[0]])
    return np.array(route)


def look_poses(
    centres: np.ndarray, yaw: np.ndarray, pitch: np.ndarray, roll: np.ndarray
) -> np.ndarray:
    """Camera-to-world poses ``[N, 4, 4]`` of level cameras in a z-up world."""
    forward = np.stack(
        [np.cos(yaw) * np.cos(pitch), np.sin(yaw) * np.cos(pitch), np.sin(pitch)], axis=-1
    )
    right = np.stack([np.sin(yaw), -np.cos(yaw), np.zeros_like(yaw)], axis=-1)
    down = np.cross(forward, right)
    c, s = np.cos(roll)[:, None], np.sin(roll)[:, None]
    poses = np.tile(np.eye(4), (len(centres), 1, 1))
    poses[:, :3, 0], poses[:, :3, 1] = c * right + s * down, c * down - s * right
    poses[:, :3, 2], poses[:, :3, 3] = forward, centres
    return poses


def _smooth_noise(rng: np.random.Generator, count: int, sigma: float, size: float) -> np.ndarray:
    noise = gaussian_filter1d(rng.normal(size=count + 8 * int(sigma)), sigma)
    return size * (noise / noise.std())[4 * int(sigma) :][:count]


def _worth_seeing(scene: MapScene, poses: np.ndarray) -> bool:
    """Whether most views are neither sky nor a wall right in front."""
    x, y = np.meshgrid(np.linspace(-0.7, 0.7, 15), np.linspace(-0.4, 0.4, 9))
    rays = np.stack([x, y, np.ones_like(x)], axis=-1).reshape(-1, 3)
    directions = np.einsum("nij,rj->nri", poses[:, :3, :3], rays)
    origins = np.broadcast_to(poses[:, None, :3, 3], directions.shape)
    depth = scene.distance(origins.reshape(-1, 3), directions.reshape(-1, 3))
    depth = depth.reshape(len(poses), -1)
    sky = np.isinf(depth).mean(1)
    good = (sky < _MOST_SKY) & (np.median(depth, axis=1) > _NEAREST_MEDIAN)
    return bool(good.mean() > 0.85)


def find_track(
    scene: MapScene, places: np.ndarray, rng: np.random.Generator, frames: int, tries: int = 40
) -> np.ndarray | None:
    """Poses ``[frames, 4, 4]`` of one walk with looks to the side, or None if none was found."""
    if len(places) < 2:
        return None
    nodes = places + np.array([0, 0, _EYE_HEIGHT])
    for _ in range(tries):
        step = rng.uniform(0.04, 0.18)
        corners = _route(scene, nodes, rng, legs=12)
        if len(corners) < 2:
            continue
        lengths = np.concatenate([[0], np.linalg.norm(np.diff(corners, axis=0), axis=1).cumsum()])
        dense = np.arange(0, lengths[-1], 0.1)
        line = np.stack([np.interp(dense, lengths, corners[:, i]) for i in range(3)], axis=1)
        line = gaussian_filter1d(line, rng.uniform(5, 10), axis=0, mode="nearest")
        arc = np.concatenate([[0], np.linalg.norm(np.diff(line, axis=0), axis=1).cumsum()])
        speed = step * np.clip(1 + _smooth_noise(rng, frames, 10, 0.4), 0, 2)
        travelled = speed.cumsum() - speed[0]
        if travelled[-1] > arc[-1]:
            continue

        def along(
            distance: np.ndarray, line: np.ndarray = line, arc: np.ndarray = arc
        ) -> np.ndarray:
            return np.stack([np.interp(distance, arc, line[:, i]) for i in range(3)], axis=1)

        centres = along(travelled)
        if clearance(scene, centres[::4]).min() < _CLEARANCE:
            continue
        ahead = along(np.minimum(travelled + 1.5, arc[-1])) - along(np.maximum(travelled - 0.3, 0))
        yaw = gaussian_filter1d(np.unwrap(np.arctan2(ahead[:, 1], ahead[:, 0])), 6, mode="nearest")
        yaw = yaw + _smooth_noise(rng, frames, 18, rng.uniform(0.1, 0.7))
        pitch = _smooth_noise(rng, frames, 15, rng.uniform(0.03, 0.2)) - 0.05
        roll = _smooth_noise(rng, frames, 10, rng.uniform(0, 0.06))
        if np.abs(np.diff(yaw)).max() > np.radians(6):
            continue
        centres = centres + _smooth_noise(rng, frames, 4, rng.uniform(0, 0.02))[:, None] * [0, 0, 1]
        poses = look_poses(centres, yaw, pitch, roll).astype(np.float32)
        if _worth_seeing(scene, poses[::8]):
            return poses
    return None
