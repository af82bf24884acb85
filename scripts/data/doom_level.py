# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of one Doom map, checked: every index in them refers to something."""

from dataclasses import dataclass

import numpy as np

# A node's child that is a leaf; a line's side that is not there.
LEAF, NO_SIDE = 0x8000, 0xFFFF

_POINT = [("x", "<i2"), ("y", "<i2")]
_TABLES = {
    "THINGS": np.dtype([*_POINT, ("angle", "<i2"), ("kind", "<i2"), ("flags", "<i2")]),
    "LINEDEFS": np.dtype(
        [
            ("ends", "<u2", 2),
            ("flags", "<u2"),
            ("special", "<u2"),
            ("tag", "<u2"),
            ("sides", "<u2", 2),  # right and left of the way from the first to the second end
        ]
    ),
    "SIDEDEFS": np.dtype(
        [
            ("offset", "<i2", 2),
            ("upper", "S8"),
            ("lower", "S8"),
            ("middle", "S8"),
            ("sector", "<u2"),
        ]
    ),
    "VERTEXES": np.dtype(_POINT),
    "SEGS": np.dtype(
        [
            ("ends", "<u2", 2),
            ("angle", "<i2"),
            ("line", "<u2"),
            ("side", "<u2"),  # the side of the line that it is: 0 right, 1 left
            ("offset", "<i2"),
        ]
    ),
    "SSECTORS": np.dtype([("count", "<u2"), ("first", "<u2")]),
    "NODES": np.dtype(
        [("at", "<i2", 2), ("way", "<i2", 2), ("boxes", "<i2", (2, 4)), ("children", "<u2", 2)]
    ),
    "SECTORS": np.dtype(
        [
            ("floor", "<i2"),
            ("ceiling", "<i2"),
            ("floor_flat", "S8"),
            ("ceiling_flat", "S8"),
            ("light", "<i2"),
            ("special", "<u2"),
            ("tag", "<u2"),
        ]
    ),
}
_EXTENDED = (b"XNOD", b"ZNOD", b"XGLN", b"ZGLN", b"XGL2", b"ZGL2", b"XGL3", b"ZGL3", b"xNd4")


class ExtendedNodesError(ValueError):
    """A map whose nodes are in a format that is not the game's own."""


@dataclass(frozen=True)
class Level:
    """Tables of a map; lengths in map units."""

    name: str
    things: np.ndarray
    lines: np.ndarray
    sides: np.ndarray
    vertices: np.ndarray  # [V, 2] float64
    segs: np.ndarray
    leaves: np.ndarray
    nodes: np.ndarray
    sectors: np.ndarray


def read_level(name: str, lumps: dict[str, bytes]) -> Level:
    """Read a map's lumps; ``ValueError`` names the one that is malformed."""
    if lumps.get("NODES", b"").startswith(_EXTENDED):
        raise ExtendedNodesError(f"{name}: NODES are in an extended format")
    tables = []
    for lump, dtype in _TABLES.items():
        if lump not in lumps:
            raise ValueError(f"{name} has no lump {lump}")
        if len(lumps[lump]) % dtype.itemsize:
            raise ValueError(f"{name}: lump {lump} is truncated")
        tables.append(np.frombuffer(lumps[lump], dtype))
    things, lines, sides, vertices, segs, leaves, nodes, sectors = tables

    def check(lump: str, indices: np.ndarray, of: str, count: int) -> None:
        wrong = np.flatnonzero(indices.reshape(len(indices), -1).max(1, initial=0) >= count)
        if len(wrong):
            raise ValueError(f"{name}: {lump} {wrong[0]} refers to {of} beyond the {count} there")

    check("LINEDEFS", lines["ends"], "VERTEXES", len(vertices))
    check("LINEDEFS", lines["sides"][:, 0], "SIDEDEFS", len(sides))
    left = lines["sides"][:, 1]
    check("LINEDEFS", np.where(left == NO_SIDE, 0, left), "SIDEDEFS", len(sides))
    check("SIDEDEFS", sides["sector"], "SECTORS", len(sectors))
    check("SEGS", segs["line"], "LINEDEFS", len(lines))
    check("SEGS", segs["side"], "a side", 2)
    lacks = np.flatnonzero(lines["sides"][segs["line"], segs["side"]] == NO_SIDE)
    if len(lacks):
        raise ValueError(f"{name}: SEGS {lacks[0]} is of a side that its line lacks")
    if not len(leaves) or not leaves["count"].all():
        raise ValueError(f"{name}: SSECTORS has none, or one without SEGS")
    last = leaves["first"].astype(int) + leaves["count"] - 1
    check("SSECTORS", last, "SEGS", len(segs))
    children = nodes["children"].astype(int)
    check("NODES", np.where(children & LEAF, children & ~LEAF, 0), "SSECTORS", len(leaves))
    # A compiler writes the children of a node before it, so there are no cycles.
    deeper = np.where(children & LEAF, -1, children).max(1, initial=-1)
    wrong = np.flatnonzero(deeper >= np.arange(len(nodes)))
    if len(wrong):
        raise ValueError(f"{name}: NODES {wrong[0]} refers to a node that is not before it")
    points = np.stack([vertices["x"], vertices["y"]], axis=1).astype(np.float64)
    return Level(name, things, lines, sides, points, segs, leaves, nodes, sectors)
