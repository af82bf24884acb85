# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Clips rendered beforehand, read into the GPU's memory while training goes on."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .distributed import World
from .store import TrackStore

LENGTH = 160
_ENOUGH = 4
_AHEAD = 3
_PARTS = ("images", "depth", "poses", "focal")


class ClipFolder:
    """Tracks in ``folder/train``, each rank a part of them, up to ``capacity``.

    More may still be arriving.
    """

    def __init__(
        self, folder: Path | None, world: World, device: torch.device, capacity: int
    ) -> None:
        if capacity < _ENOUGH:
            raise ValueError(f"training needs at least {_ENOUGH} clips, not {capacity}")
        self.folder, self.world, self.device, self.capacity = folder, world, device, capacity
        self.loaded = 0
        self._seen: set[Path] = set()
        self._waiting: deque[Path] = deque()
        self._reading: deque[Future[dict[str, Tensor]]] = deque()
        self._pool = ThreadPoolExecutor(2)
        self._polls = 0
        self._store: TrackStore | None = None

    @property
    def store(self) -> TrackStore:
        """What has been read so far. RuntimeError before ``poll`` has said that there is enough."""
        if self._store is None:
            raise RuntimeError("no clip has been read yet; poll() tells when there are enough")
        return self._store

    def poll(self) -> bool:
        """Take in at most one track; whether there are enough to train on."""
        if self.folder is None:
            return False
        if self._polls % 20 == 0:
            self._scan()
        self._polls += 1
        while self._waiting and len(self._reading) < _AHEAD and self.loaded < self.capacity:
            self._reading.append(self._pool.submit(read_clip, self._waiting.popleft()))
        if self._reading and self._reading[0].done():
            track = self._reading.popleft().result()
            if self._store is None:
                size = track["depth"].shape[-2:]
                self._store = TrackStore(self.capacity, LENGTH, size, self.device)
            parts = (track[name].to(self.device, non_blocking=True) for name in _PARTS)
            self.store.add(*parts)
            self.loaded += 1
        return self.loaded >= _ENOUGH

    def _scan(self) -> None:
        if self.folder is None:
            return
        for path in sorted((self.folder / "train").glob("[!.]*.npz"), key=_walk_and_map):
            # By name, so that every rank chooses alike while files are still arriving.
            mine = sum(path.name.encode()) % self.world.size == self.world.rank
            if mine and path not in self._seen:
                self._seen.add(path)
                self._waiting.append(path)


def _walk_and_map(path: Path) -> tuple[str, str]:
    """Each map's first walk comes first, so that the first clips are of many maps."""
    name, _, walk = path.stem.rpartition("_")
    return walk.zfill(8), name


def read_clip(path: Path) -> dict[str, Tensor]:
    """Arrays of a clip as ``TrackStore.add`` takes them, in pinned memory where CUDA is used."""
    with np.load(path) as file:
        track = {name: torch.from_numpy(file[name]) for name in _PARTS}
    track["images"] = track["images"].permute(0, 3, 1, 2).contiguous()
    # Copies from pinned memory do not hold up the GPU.
    return {k: v.pin_memory() for k, v in track.items()} if torch.cuda.is_available() else track
