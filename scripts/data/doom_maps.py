# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Read Doom maps as textured triangle meshes (``openarena_maps.MapMesh``).

Floors and ceilings are the leaves of the map's BSP tree, walls its lines. The sky and what hangs
in openings, which one sees through, are left out; a closed door is a wall.
"""

import numpy as np
from doom_bsp import leaf_at, leaf_polygons, leaf_sectors
from doom_files import WadImages, text
from doom_level import NO_SIDE, Level
from openarena_maps import MapMesh

UNITS_PER_METRE = 32.0
_SKY = "F_SKY1"
_UPPER_UNPEGGED, _LOWER_UNPEGGED = 0x8, 0x10
# Vertex light of sectors that are dark and bright in the game; at 64 an image shows as it is.
_DARKEST, _BRIGHTEST = 28.0, 80.0
_CONTRAST = 16  # of 256 levels, between walls along x and along y
_HEADROOM = 60  # map units above a place
_PLACE_HEIGHT = 0.6  # metres; see openarena_tracks.py
_PLACES = frozenset(
    (
        *(1, 2, 3, 4, 11, 14),  # starts, and where teleporters lead to
        *(2001, 2002, 2003, 2004, 2005, 2006, 82),  # weapons
        *(2007, 2008, 2010, 2046, 2047, 2048, 2049, 17, 8),  # ammunition
        *(2011, 2012, 2013, 2014, 2015, 2018, 2019, 83),  # health and armour
        *(2022, 2023, 2024, 2025, 2026, 2045, 5, 6, 13, 38, 39, 40),  # powers and keys
        *(9, 58, 64, 65, 66, 67, 68, 69, 71, 84, 3001, 3002, 3003, 3004, 3005, 3006),  # monsters
    )
)


class _Faces:
    """Convex polygons of one light and material each."""

    def __init__(self) -> None:
        self._corners: list[np.ndarray] = []  # [K, 5] x, y, z in map units, u, v
        self._lights: list[float] = []  # 0 to 255
        self._materials: list[str] = []

    def add(self, positions: np.ndarray, uv: np.ndarray, light: float, material: str) -> None:
        """Add a polygon of ``positions [K, 3]`` in map units and ``uv [K, 2]``."""
        self._corners.append(np.concatenate([positions, uv], axis=1))
        self._lights.append(light)
        self._materials.append(material)

    def mesh(self, places: np.ndarray) -> MapMesh:
        """Mesh of all polygons, each a fan of triangles."""
        counts = np.array([len(corners) for corners in self._corners])
        starts = counts.cumsum() - counts
        fans = [
            start + np.stack([np.zeros(k - 2, int), np.arange(1, k - 1), np.arange(2, k)], axis=1)
            for start, k in zip(starts, counts)
        ]
        corners = np.concatenate(self._corners).astype(np.float32)
        shares = np.clip(self._lights, 0, 255) / 255
        light = np.repeat(_DARKEST + shares * (_BRIGHTEST - _DARKEST), counts)
        names, ids = np.unique(self._materials, return_inverse=True)
        triangles = np.concatenate(fans).astype(np.int32)
        return MapMesh(
            positions=corners[:, :3] / UNITS_PER_METRE,
            uv=corners[:, 3:],
            light_uv=np.zeros((len(corners), 2), np.float32),
            colors=np.tile(light.round().astype(np.uint8)[:, None], (1, 3)),
            triangles=triangles,
            texture_ids=np.repeat(ids, counts - 2).astype(np.int32),
            light_ids=np.full(len(triangles), -1, np.int32),
            texture_names=names.tolist(),
            lightmaps=np.zeros((0, 1, 1, 3), np.uint8),
            places=places,
        )


def read_doom_map(level: Level, images: WadImages) -> MapMesh:
    """Mesh of a map; its materials are ``wall/NAME`` and ``flat/NAME`` (``material_image``)."""
    faces = _Faces()
    _add_flats(level, faces)
    for index in range(len(level.lines)):
        _add_walls(level, index, images, faces)
    return faces.mesh(_places(level))


def material_image(images: WadImages, material: str) -> np.ndarray:
    """Image ``[H, W, 3]`` uint8 of a material."""
    kind, name = material.split("/", 1)
    return images.wall(name) if kind == "wall" else images.flat(name)


def _add_flats(level: Level, faces: _Faces) -> None:
    for polygon, index in zip(leaf_polygons(level), leaf_sectors(level)):
        sector = level.sectors[index]
        if not len(polygon):
            continue
        # Flats lie on a grid of 64 units, their upper edges towards +y.
        uv = polygon * [1 / 64, -1 / 64]
        # Of a closed sector the floor may be the top of a wall under the sky.
        closed = sector["ceiling"] <= sector["floor"]
        for part in ("floor",) if closed else ("floor", "ceiling"):
            flat = text(sector[f"{part}_flat"])
            if flat != _SKY:
                heights = np.full((len(polygon), 1), sector[part])
                positions = np.concatenate([polygon, heights], axis=1)
                faces.add(positions, uv, sector["light"], f"flat/{flat}")


def _add_walls(level: Level, index: int, images: WadImages, faces: _Faces) -> None:
    """Add what is solid of both sides of a line."""
    line = level.lines[index]
    ends = level.vertices[line["ends"]]
    way = ends[1] - ends[0]
    length = np.hypot(*way)
    if not length:
        return
    contrast = _CONTRAST * (way[1] ** 2 - way[0] ** 2) / length**2
    for own, other in ((0, 1), (1, 0)):
        if line["sides"][own] == NO_SIDE:
            continue
        side = level.sides[line["sides"][own]]
        front = level.sectors[side["sector"]]
        back = None
        if line["sides"][other] != NO_SIDE:
            back = level.sectors[level.sides["sector"][line["sides"][other]]]
        left, right = ends if own == 0 else ends[::-1]
        for low, high, name, beyond, hung in _solid_parts(side, front, back, line["flags"]):
            material, (width, height) = _material(name, beyond, images)
            if high <= low or material == f"flat/{_SKY}":
                continue
            # The image's upper edge is where it is hung, or its lower edge is there.
            top = hung[0] + (height if hung[1] else 0) + side["offset"][1]
            u = (side["offset"][0] + np.array([0, length, length, 0])) / width
            v = (top - np.array([low, low, high, high], float)) / height
            positions = np.array([[*left, low], [*right, low], [*right, high], [*left, high]])
            faces.add(positions, np.stack([u, v], axis=1), front["light"] + contrast, material)


def _solid_parts(
    side: np.ndarray, front: np.ndarray, back: np.ndarray | None, flags: int
) -> list[tuple[int, int, str, str, tuple[int, bool]]]:
    """Walls on a side of a line: from and up to which height, texture, flat beyond, and hanging.

    Hanging is the height of the image's edge, and whether it is the lower edge.
    """
    floor, ceiling = int(front["floor"]), int(front["ceiling"])
    flat = text(front["floor_flat"])
    if back is None:
        hung = (floor, True) if flags & _LOWER_UNPEGGED else (ceiling, False)
        return [(floor, ceiling, text(side["middle"]), flat, hung)]
    step, lintel = int(back["floor"]), int(back["ceiling"])
    parts = []
    if step > floor:
        hung = (ceiling if flags & _LOWER_UNPEGGED else step, False)
        flat = text(back["floor_flat"])
        parts.append((floor, min(step, ceiling), text(side["lower"]), flat, hung))
    under_sky = text(front["ceiling_flat"]) == text(back["ceiling_flat"]) == _SKY
    if lintel < ceiling and not under_sky:
        hung = (ceiling, False) if flags & _UPPER_UNPEGGED else (lintel, True)
        flat = text(back["ceiling_flat"])
        parts.append((max(lintel, floor), ceiling, text(side["upper"]), flat, hung))
    return parts


def _material(name: str, flat: str, images: WadImages) -> tuple[str, tuple[int, int]]:
    """Material of a wall and its image's size; a wall without texture is of the flat beyond it."""
    if name == "-":
        return f"flat/{flat}", (64, 64)
    return f"wall/{name}", images.wall_size(name)


def _places(level: Level) -> np.ndarray:
    """Places ``[P, 3]`` in metres where something stands that needs room."""
    sectors, found = leaf_sectors(level), []
    for thing in level.things[np.isin(level.things["kind"], list(_PLACES))]:
        x, y = float(thing["x"]), float(thing["y"])
        sector = level.sectors[sectors[leaf_at(level, x, y)]]
        if int(sector["ceiling"]) - int(sector["floor"]) >= _HEADROOM:
            found.append([x, y, sector["floor"] + _PLACE_HEIGHT * UNITS_PER_METRE])
    return np.array(found, np.float32).reshape(-1, 3) / UNITS_PER_METRE
