# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The camera's way through the map, bounded for streams without an end."""

from __future__ import annotations

from collections import deque
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.geometry.sim3 import IDENTITY, Sim3
from lingbot_map_ros.mapping.export import write_tum


class ThinningLog:
    """A log of numbered rows that never holds more than `capacity` of them.

    When it is full, every second row goes and from then on only every second new one is kept, and
    so on: the rows stay evenly spread over the whole run, however long.
    """

    def __init__(self, width: int, capacity: int):
        self._capacity = max(capacity, 2)
        self._stamps: NDArray[np.int64] = np.empty(min(1024, self._capacity), np.int64)
        self._rows: NDArray[np.float64] = np.empty((len(self._stamps), width))
        self._stored = 0
        self.offered = 0
        """Rows that came."""
        self.stride = 1
        """One in this many offered rows is kept."""

    def __len__(self) -> int:
        return self._stored

    def add(self, stamp_ns: int, row: NDArray[np.float64]) -> None:
        """Offer a row [width]."""
        if self.offered % self.stride == 0:
            if self._stored == self._capacity:
                self._thin()
            # Thinning changes the stride, and with it whether this row is one to keep.
            if self.offered % self.stride == 0:
                self._append(stamp_ns, row)
        self.offered += 1

    def rows(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Stamps [N] and rows [N, width], as copies."""
        return self._stamps[: self._stored].copy(), self._rows[: self._stored].copy()

    def _append(self, stamp_ns: int, row: NDArray[np.float64]) -> None:
        if self._stored == len(self._stamps):
            size = min(2 * self._stored, self._capacity)
            self._stamps = np.concatenate((self._stamps, np.empty(size - self._stored, np.int64)))
            grown = np.empty((size - self._stored, self._rows.shape[1]))
            self._rows = np.concatenate((self._rows, grown))
        self._stamps[self._stored] = stamp_ns
        self._rows[self._stored] = row
        self._stored += 1

    def _thin(self) -> None:
        kept = (self._stored + 1) // 2
        self._stamps[:kept] = self._stamps[: self._stored : 2].copy()
        self._rows[:kept] = self._rows[: self._stored : 2].copy()
        self._stored = kept
        self.stride *= 2


class Trajectory:
    """Poses of keyframes and of the frames between them.

    Poses are camera-to-world [4, 4] with optical axes, in the map's world and model units; on
    output a Sim(3) `world` moves them, for metres or other world axes. Keyframes and other frames
    are thinned apart, each to `max_poses`, so that a run of days costs as much memory as one of
    hours; the newest `path_max_length` keyframes are kept besides, unthinned, for display.
    """

    def __init__(self, path_max_length: int = 5000, max_poses: int = 100_000):
        self._keyframes = ThinningLog(12 + 1, max_poses)
        self._others = ThinningLog(12 + 1, max_poses)
        self._path: deque[tuple[int, NDArray[np.float64]]] = deque(maxlen=path_max_length)

    def __len__(self) -> int:
        return len(self._keyframes) + len(self._others)

    @property
    def stride(self) -> int:
        """One in this many frames is kept; 1 until the trajectory was first thinned."""
        return max(self._keyframes.stride, self._others.stride)

    def add(self, index: int, stamp_ns: int, T: NDArray[np.float64], keyframe: bool) -> None:
        """Append the pose [4, 4] of the stream's frame `index`; they need not come in order."""
        row = np.append(np.asarray(T, np.float64)[:3], index)
        (self._keyframes if keyframe else self._others).add(stamp_ns, row)
        if keyframe:
            self._path.append((stamp_ns, np.array(T, np.float64)))

    def limit_path(self, path_max_length: int) -> None:
        """Keep at most so many of the newest keyframes for display from now on."""
        self._path = deque(self._path, maxlen=path_max_length)

    @property
    def num_keyframes(self) -> int:
        """Keyframes that came, whether they are still here or not."""
        return self._keyframes.offered

    def path(
        self, world: Sim3 = IDENTITY, newest: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Stamps [N] and poses [N, 4, 4] of the newest keyframes, moved by `world`.

        At most `newest` of them; None: all that are kept for display.
        """
        entries = list(islice(reversed(self._path), newest))[::-1]
        stamps = np.array([stamp for stamp, _ in entries], np.int64)
        poses = np.array([T for _, T in entries]).reshape(-1, 4, 4)
        return stamps, world.apply_pose(poses)

    def poses(
        self, world: Sim3 = IDENTITY, keyframes_only: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Stamps [N] and poses [N, 4, 4] in the order of the frames, moved by `world`.

        Stamps rise but where the camera's clock was set back or one of them was wrong.
        """
        stamps, rows = self._keyframes.rows()
        if not keyframes_only:
            other_stamps, other_rows = self._others.rows()
            stamps, rows = np.append(stamps, other_stamps), np.concatenate((rows, other_rows))
        order = np.argsort(rows[:, 12])
        poses = np.tile(np.eye(4), (len(order), 1, 1))
        poses[:, :3] = rows[order, :12].reshape(-1, 3, 4)
        return stamps[order], world.apply_pose(poses)

    def write_tum(self, path: Path, world: Sim3 = IDENTITY, keyframes_only: bool = False) -> int:
        """Write the poses as a TUM file and return their number; ExportError if it fails."""
        return write_tum(path, *self.poses(world, keyframes_only))
