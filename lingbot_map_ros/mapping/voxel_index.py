# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A hash table from voxel coordinates to row numbers, vectorised over whole point clouds."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_BITS = 21
_HALF = 1 << (_BITS - 1)
_MASK = (1 << _BITS) - 1
_EMPTY = -1
_MAX_LOAD = 0.6
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

COORDINATE_LIMIT = _HALF
"""Voxel coordinates lie in [-COORDINATE_LIMIT, COORDINATE_LIMIT)."""


def pack(coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
    """Join voxel coordinates [3, N] to one key [N] each."""
    x, y, z = coordinates + _HALF
    return (x << (2 * _BITS)) | (y << _BITS) | z


def sorting_order(coordinates: NDArray[np.int64]) -> NDArray[np.intp]:
    """Order [N] that brings equal voxel coordinates [3, N] together.

    Where they span less than 2**32 voxels, as one frame's do, they are numbered within their box
    and sorted by two digits of 16 bits, which numpy counts rather than compares.
    """
    low, high = coordinates.min(1), coordinates.max(1)
    _, depth, width = extent = (high - low + 1).tolist()
    if math.prod(extent) > 1 << 32:
        return np.argsort(pack(coordinates))
    x, y, z = coordinates - low[:, None]
    numbers = (x * depth + y) * width + z
    order = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")
    upper = (numbers >> 16).astype(np.uint16)
    return order.take(np.argsort(upper.take(order), kind="stable"))


def halve(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Keys [N] of the same places in a grid of voxels twice as wide."""
    halved = np.zeros_like(keys)
    for shift in (0, _BITS, 2 * _BITS):
        halved |= ((((keys >> shift) & _MASK) + _HALF) >> 1) << shift
    return halved


class VoxelIndex:
    """Numbers distinct keys 0, 1, 2, ... in the order of their insertion.

    Open addressing with linear probing; each round of probing is a handful of array operations
    over the keys that have not found their place. Grows up to `limit` keys.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self.keys: NDArray[np.int64] = np.empty(min(limit, 1024), np.int64)
        """Keys by row number; valid up to `len(self)`."""
        self._count = 0
        self._build_table()

    def __len__(self) -> int:
        return self._count

    def find(self, keys: NDArray[np.int64]) -> NDArray[np.int32]:
        """Row numbers [N] of keys [N], -1 for those that are not here."""
        rows = np.full(len(keys), _EMPTY, np.int32)
        open_, slots = np.arange(len(keys)), self._home(keys)
        while len(open_):
            found = self._table[slots]
            taken = found != _EMPTY
            hit = taken & (self.keys[found] == keys[open_])
            rows[open_[hit]] = found[hit]
            go_on = taken & ~hit
            open_, slots = open_[go_on], (slots[go_on] + 1) & self._slot_mask
        return rows

    def reserve(self, count: int) -> int:
        """Take the memory for `count` keys; return how many there is room for.

        The caller keeps within the limit. A MemoryError leaves all keys as they were.
        """
        if count > len(self.keys):
            grown = np.empty(max(count, min(2 * len(self.keys), self._limit)), np.int64)
            grown[: self._count] = self.keys[: self._count]
            self.keys = grown
        if count > _MAX_LOAD * len(self._table):
            self._build_table()
        return len(self.keys)

    def insert(self, keys: NDArray[np.int64]) -> NDArray[np.int32]:
        """Add distinct keys [N] that are not here yet; return their row numbers [N]."""
        first, count = self._count, self._count + len(keys)
        self.reserve(count)
        self.keys[first:count] = keys
        self._count = count
        rows = np.arange(first, count, dtype=np.int32)
        self._place(rows)
        return rows

    @staticmethod
    def planned_bytes(limit: int) -> int:
        """Most bytes that an index of `limit` keys comes to hold."""
        return 8 * limit + 4 * _table_size(limit)

    def nbytes(self) -> int:
        """Bytes held."""
        return self.keys.nbytes + self._table.nbytes

    def _build_table(self) -> None:
        slots = _table_size(len(self.keys))
        self._table = np.full(slots, _EMPTY, np.int32)
        self._slot_mask = slots - 1
        self._shift = np.uint64(64 - (slots.bit_length() - 1))
        self._place(np.arange(self._count, dtype=np.int32))

    def _place(self, rows: NDArray[np.int32]) -> None:
        """Put row numbers into free slots; where several want one, the last wins it."""
        slots = self._home(self.keys[rows])
        while len(rows):
            free = self._table[slots] == _EMPTY
            self._table[slots[free]] = rows[free]
            left = self._table[slots] != rows
            rows, slots = rows[left], (slots[left] + 1) & self._slot_mask

    def _home(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        return ((keys.view(np.uint64) * _GOLDEN) >> self._shift).astype(np.int64)


def _table_size(keys: int) -> int:
    return 1 << max(4, int(np.ceil(np.log2(keys / _MAX_LOAD))))
