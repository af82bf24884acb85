# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the network that knows the truth, and can be told to err.

It has the interface of ``GCTStream`` and reads the number of a frame from the image's first pixels.
Every window has an origin, an orientation and a unit of its own, as the network's windows have.
"""

from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch

from lingbot_map_ros.errors import CacheError, RollbackError
from lingbot_map_ros.geometry.alignment import Sim3
from lingbot_map_ros.geometry.poses import encode_pose, invert, nearest_rotation
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import Prediction

HEIGHT, WIDTH = 42, 56
K = np.array([[40.0, 0, WIDTH / 2], [0, 40.0, HEIGHT / 2], [0, 0, 1]])
ROOM = np.array([4.0, 1.5, 3.0])
"""Half the size of the room, in metres; y points down."""
CONFIG = GCTConfig(
    image_size=WIDTH, num_scale_frames=4, sliding_window=8, max_keyframes=24, selected_layers=()
)


def numbered(number):
    """Textured image that carries its number."""
    image = np.random.default_rng(number).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
    image[0, 0] = (number & 255, number >> 8, 0)
    return image


def turn(rotation_vector):
    """Rotation matrix of a vector (axis times angle)."""
    angle = np.linalg.norm(rotation_vector)
    if angle == 0:
        return np.eye(3)
    x, y, z = np.asarray(rotation_vector) / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def loop(frames, step=0.04, radius=1.5):
    """Camera-to-world poses of a walk in circles, looking outwards, `step` metres a frame."""
    poses = []
    for i in range(frames):
        angle = i * step / radius
        pose = np.eye(4)
        pose[:3, :3] = turn([0, angle, 0]) @ turn([0.1 * np.sin(3 * angle), 0, 0])
        pose[:3, 3] = [radius * np.sin(angle), 0.2 * np.sin(2 * angle), radius * np.cos(angle)]
        poses.append(pose)
    return np.stack(poses)


def room_depth(pose):
    """Depth [H, W] of the room's walls from inside."""
    v, u = np.mgrid[:HEIGHT, :WIDTH]
    rays = np.stack(((u - K[0, 2]) / K[0, 0], (v - K[1, 2]) / K[1, 1], np.ones_like(u)), -1)
    rays = rays @ pose[:3, :3].T
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = (np.sign(rays) * ROOM - pose[:3, 3]) / rays
    return np.where(np.isfinite(distance), distance, np.inf).min(-1)


class Oracle:
    """Poses and depth of a walk through the room, window by window.

    `err(number, window, T, depth, confidence)` may return other values for a frame; `drift` is a
    relative error [4, 4] a frame that adds up along a window, `jitter` the deviation of an error of
    each observation (radians, and metres times two).
    """

    def __init__(self, poses, *, err=None, drift=None, jitter=0.0, seed=0, config=CONFIG):
        self.config, self.pending_limit = config, 8
        self.capacity = config.max_keyframes + self.pending_limit
        self.device = torch.device("cpu")
        self.calls = []
        self._poses, self._err, self._jitter = poses, err, jitter
        self._estimated = poses if drift is None else _drifting(poses, drift)
        self._seed = seed
        self.window = -1
        self.reset()

    def reset(self):
        self.window += 1
        self.num_frames = self.num_pending = 0
        random = np.random.default_rng((self._seed, self.window))
        self._gauge = Sim3(
            float(random.uniform(0.5, 2.0)), turn(random.normal(size=3)), random.normal(size=3)
        )

    def step(self, images, mode="keyframe", *, depth=True):
        assert self.num_frames or mode == "keyframe"
        if mode == "keyframe" and self.num_pending:
            raise CacheError("pending")
        numbers = [int(p[0] + 256 * p[1]) for p in (images[:, :2, 0, 0] * 255).round()]
        self.calls.append((numbers, mode, self.window))
        encodings, depths, confidences = zip(*map(self._observe, numbers), strict=True)
        self.num_frames += len(numbers) * (mode != "skip")
        self.num_pending += mode == "pending"
        assert self.num_frames <= self.capacity
        return Prediction(
            torch.from_numpy(np.stack(encodings)).float(),
            torch.from_numpy(np.stack(depths)).float() if depth else None,
            torch.from_numpy(np.stack(confidences)).float() if depth else None,
            (),
        )

    def commit(self, keep_pending=0):
        committed, self.num_pending = self.num_pending - keep_pending, keep_pending
        return committed

    def rollback(self):
        if not self.num_pending:
            raise RollbackError("nothing")
        self.num_pending -= 1
        self.num_frames -= 1

    @contextmanager
    def transaction(self):
        state = self.num_frames, self.num_pending
        try:
            yield
        except BaseException:
            self.num_frames, self.num_pending = state
            raise

    def _observe(self, number):
        T, depth = self._estimated[number].copy(), room_depth(self._poses[number])
        confidence = np.full_like(depth, 5.0)
        random = np.random.default_rng((self._seed, self.window, number))
        T[:3, :3] = T[:3, :3] @ turn(random.normal(scale=self._jitter, size=3))
        T[:3, 3] += random.normal(scale=2 * self._jitter, size=3)
        if self._err is not None:
            T, depth, confidence = self._err(number, self.window, T, depth, confidence)
        raw = self._gauge.apply_pose(T)
        return encode_pose(raw, K, (HEIGHT, WIDTH)), depth * self._gauge.scale, confidence


def _drifting(poses, drift):
    estimated = [poses[0]]
    for before, after in pairwise(poses):
        step = invert(before) @ after @ drift
        pose = estimated[-1] @ step
        pose[:3, :3] = nearest_rotation(pose[:3, :3])
        estimated.append(pose)
    return np.stack(estimated)
