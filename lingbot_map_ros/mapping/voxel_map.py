# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The map as a bounded cloud of voxels."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lingbot_map_ros.errors import ConfigurationError, InputError
from lingbot_map_ros.mapping.voxel_index import (
    COORDINATE_LIMIT,
    VoxelIndex,
    halve,
    pack,
    sorting_order,
)

_log = logging.getLogger(__name__)

MAX_WEIGHT = 1000.0
"""A voxel's memory: beyond this weight old observations fade, so that the map follows changes."""

_CHANNELS = 6
_OCTANTS = 8
"""Voxels that no doubling merges: they meet in the origin."""


class VoxelMap:
    """Averages position and colour of the points in each voxel of a grid.

    At the limit of `max_points` voxels the voxel size doubles and the map is merged into the
    coarser grid: it keeps its whole extent and loses detail, rather than forgetting where the robot
    has been. One warning a doubling says so. Memory is at most `planned_bytes(max_points)`.
    """

    def __init__(self, voxel_size: float, max_points: int):
        if not (voxel_size > 0 and np.isfinite(voxel_size)):
            raise ConfigurationError(f"voxel_size must be a positive length, not {voxel_size}")
        if max_points < _OCTANTS:
            raise ConfigurationError(f"max_points must be at least {_OCTANTS}, not {max_points}")
        self._initial_voxel_size = voxel_size
        self.max_points = max_points
        self.clear()

    @staticmethod
    def planned_bytes(max_points: int) -> int:
        """Most bytes that a map of `max_points` voxels comes to hold."""
        return VoxelIndex.planned_bytes(max_points) + max_points * 4 * (_CHANNELS + 1)

    def clear(self) -> None:
        """Forget everything; the voxel size is again the configured one."""
        self.voxel_size = self._initial_voxel_size
        self._empty()

    def _empty(self) -> None:
        self._index = VoxelIndex(self.max_points)
        self._means: NDArray = np.empty((0, _CHANNELS), np.float32)
        self._weights: NDArray = np.empty(0, np.float32)

    def __len__(self) -> int:
        return len(self._index)

    def integrate(
        self,
        points: NDArray,
        colors: NDArray[np.uint8],
        weights: ArrayLike | None = None,
    ) -> None:
        """Add points [N, 3] with RGB colours [N, 3] and weights [N] (default: 1 each).

        Points that are not finite, or lie more than a million voxels from the origin, and weights
        that are not positive are left out. Raises InputError if the shapes do not match; where
        memory runs out, a MemoryError leaves the map as it was.
        """
        points, colors = np.asarray(points), np.asarray(colors)
        weight = np.ones(len(points)) if weights is None else np.asarray(weights, np.float64)
        if not (points.shape == colors.shape == (len(weight), 3) and weight.ndim == 1):
            raise InputError(
                f"points {points.shape}, colors {colors.shape} and weights {weight.shape} "
                "must be [N, 3], [N, 3] and [N]"
            )
        # Channel by channel: numpy is many times as fast along long axes as along short ones.
        samples: NDArray = np.empty((_CHANNELS, len(points)))
        samples[:3], samples[3:] = points.T, colors.T
        farthest = self.voxel_size * (COORDINATE_LIMIT - 1)
        usable = np.abs(samples[:3]).max(0, initial=0) < farthest
        usable &= (weight > 0) & np.isfinite(weight)
        if not usable.all():
            samples, weight = samples[:, usable], weight[usable]
        if not len(weight):
            return
        while True:
            coordinates = np.floor(samples[:3] / self.voxel_size).astype(np.int64)
            keys, groups = _group(pack(coordinates), sorting_order(coordinates))
            rows = self._index.find(keys)
            new = rows < 0
            if len(self) + int(np.count_nonzero(new)) <= self.max_points:
                break
            self._coarsen()
        means = _group_means(samples, weight, groups)
        rows[new] = self._insert(keys[new])
        self._blend(rows, *means)

    def points(self) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Mean position [N, 3] and RGB colour [N, 3] of the voxels, as copies."""
        means = self._means[: len(self)]
        return means[:, :3].copy(), np.rint(means[:, 3:]).astype(np.uint8)

    def nbytes(self) -> int:
        """Bytes held now."""
        return self._index.nbytes() + self._means.nbytes + self._weights.nbytes

    def _insert(self, keys: NDArray[np.int64]) -> NDArray[np.int32]:
        capacity = self._index.reserve(len(self) + len(keys))
        if capacity > len(self._weights):
            grown = capacity - len(self._weights)
            means = np.concatenate((self._means, np.zeros((grown, _CHANNELS), np.float32)))
            self._weights = np.concatenate((self._weights, np.zeros(grown, np.float32)))
            self._means = means
        return self._index.insert(keys)

    def _blend(self, rows: NDArray[np.int32], means: NDArray, weights: NDArray) -> None:
        """Average new means [M, 6] into the voxels of distinct rows [M]."""
        old = self._weights[rows]
        share = weights / (old + weights)
        before = self._means.take(rows, 0)
        self._means[rows] = before + share[:, None] * (means - before)
        self._weights[rows] = np.minimum(old + weights, MAX_WEIGHT)

    def _coarsen(self) -> None:
        count = len(self)
        means, weights = self._means[:count], self._weights[:count]
        keys = halve(self._index.keys[:count])
        keys, groups = _group(keys, np.argsort(keys))
        means, weights = _group_means(means.T, weights, groups)
        del groups
        self.voxel_size *= 2
        self._empty()
        rows = self._insert(keys)
        self._means[rows] = means
        self._weights[rows] = np.minimum(weights, MAX_WEIGHT)
        _log.warning(
            "the map reached its limit of %d points: voxels are now %.3g wide and %d points are "
            "left; raise map_max_points to keep more detail",
            self.max_points,
            self.voxel_size,
            len(self),
        )


def _group(keys: NDArray[np.int64], order: NDArray) -> tuple[NDArray[np.int64], NDArray]:
    """Distinct keys [M], and the group [N] of each key; `order` [N] brings equal ones together."""
    ordered = keys.take(order)
    first = np.ones(len(keys), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    groups = np.empty(len(keys), np.intp)
    groups[order] = np.cumsum(first) - 1
    return ordered[first], groups


def _group_means(samples: NDArray, weights: NDArray, groups: NDArray) -> tuple[NDArray, NDArray]:
    """Weighted means [M, C] of the groups of samples [C, N], and their weights [M]."""
    total = np.bincount(groups, weights)
    # One channel at a time: a map of millions must not be copied whole to be merged.
    means: NDArray = np.empty((len(total), len(samples)))
    for channel, values in enumerate(samples):
        means[:, channel] = np.bincount(groups, values * weights) / total
    return means, total
