# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The convex pieces that the BSP tree of a Doom map divides its plane into."""

import numpy as np
from doom_level import LEAF, Level

_MARGIN = 64.0  # map units around the map


def clip(polygon: np.ndarray, at: np.ndarray, way: np.ndarray) -> np.ndarray:
    """Part of a convex polygon ``[K, 2]`` to the right of the line through ``at`` along ``way``."""
    right = (polygon - at) @ [way[1], -way[0]]
    inside = right >= 0
    if inside.all():
        return polygon
    following = np.roll(polygon, -1, axis=0)
    crossing = inside != np.roll(inside, -1)
    share = right / np.where(crossing, right - np.roll(right, -1), 1)
    cuts = polygon + share[:, None] * (following - polygon)
    return np.stack([polygon, cuts], axis=1)[np.stack([inside, crossing], axis=1)]


def leaf_sectors(level: Level) -> np.ndarray:
    """Sector ``[L]`` that each leaf is a part of."""
    segs = level.segs[level.leaves["first"]]
    return level.sides["sector"][level.lines["sides"][segs["line"], segs["side"]]]


def leaf_polygons(level: Level) -> list[np.ndarray]:
    """Convex polygon ``[K, 2]`` of each leaf in map units, ``[0, 2]`` where nothing is left."""
    low, high = level.vertices.min(0) - _MARGIN, level.vertices.max(0) + _MARGIN
    everything = np.array([low, [high[0], low[1]], high, [low[0], high[1]]])
    polygons = [np.zeros((0, 2))] * len(level.leaves)
    left_to_do = [(_root(level), everything)]
    while left_to_do:
        child, polygon = left_to_do.pop()
        if child & LEAF:
            polygons[child & ~LEAF] = _clip_by_segs(level, child & ~LEAF, polygon)
            continue
        node = level.nodes[child]
        way, (right, left) = node["way"].astype(np.float64), node["children"].tolist()
        left_to_do.append((right, clip(polygon, node["at"], way)))
        left_to_do.append((left, clip(polygon, node["at"], -way)))
    return polygons


def _clip_by_segs(level: Level, leaf: int, polygon: np.ndarray) -> np.ndarray:
    count, first = level.leaves[leaf].tolist()
    for seg in level.segs[first : first + count]:
        # The line's ends are exact, those of a part of it are rounded.
        start, end = level.vertices[level.lines["ends"][seg["line"]]]
        way = start - end if seg["side"] else end - start
        polygon = clip(polygon, start, way)
    return polygon if len(polygon) > 2 else polygon[:0]


def leaf_at(level: Level, x: float, y: float) -> int:
    """Leaf that a point is in."""
    child = _root(level)
    while not child & LEAF:
        node = level.nodes[child]
        at, way = node["at"].tolist(), node["way"].tolist()
        child = int(node["children"][int((x - at[0]) * way[1] < (y - at[1]) * way[0])])
    return child & ~LEAF


def _root(level: Level) -> int:
    return len(level.nodes) - 1 if len(level.nodes) else LEAF
