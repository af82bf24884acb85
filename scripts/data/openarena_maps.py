# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Read OpenArena and Nexuiz (Quake 3, IBSP 46) maps as textured triangle meshes.

The maps are game data under GPL-2+: they are read on the machine that trains and never enter the
repository. Debian packages: see ``openarena_pack.py``.
"""

import dataclasses
import io
import re
import struct
from dataclasses import dataclass

import numpy as np
from openarena_files import GameFiles
from PIL import Image

UNITS_PER_METRE = 40.0
_SURFACE_NODRAW, _SURFACE_SKY = 0x80, 0x4
_INVISIBLE = {"sky", "nodraw", "trans", "fog", "water", "lava", "slime"}
_PATCH_STEPS = 5

_TEXTURE = np.dtype([("name", "S64"), ("flags", "<i4"), ("contents", "<i4")])
_VERTEX = np.dtype(
    [
        ("position", "<f4", 3),
        ("uv", "<f4", 2),
        ("light_uv", "<f4", 2),
        ("normal", "<f4", 3),
        ("color", "u1", 4),
    ]
)
_FACE = np.dtype(
    [
        ("texture", "<i4"),
        ("effect", "<i4"),
        ("kind", "<i4"),
        ("vertex", "<i4"),
        ("num_vertices", "<i4"),
        ("index", "<i4"),
        ("num_indices", "<i4"),
        ("lightmap", "<i4"),
        ("unused", "<i4", 16),
        ("patch_size", "<i4", 2),
    ]
)
_POLYGON, _PATCH, _MESH = 1, 2, 3


@dataclass
class MapMesh:
    """One map, z up."""

    positions: np.ndarray  # [N, 3] float32, metres
    uv: np.ndarray  # [N, 2]
    light_uv: np.ndarray  # [N, 2]
    colors: np.ndarray  # [N, 3] uint8
    triangles: np.ndarray  # [T, 3] int32
    texture_ids: np.ndarray  # [T] index into texture_names
    light_ids: np.ndarray  # [T] index into lightmaps, negative for vertex light
    texture_names: list[str]
    lightmaps: np.ndarray  # [L, side, side, 3] uint8
    places: np.ndarray  # [P, 3] metres: spawn points and items, on walkable ground


def _tessellate(control: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and triangles of a grid of biquadratic patches ``control [h, w, features]``."""
    t = np.linspace(0, 1, _PATCH_STEPS + 1)
    basis = np.stack([(1 - t) ** 2, 2 * t * (1 - t), t * t], axis=1)
    side = _PATCH_STEPS + 1
    corner = (np.arange(_PATCH_STEPS)[:, None] * side + np.arange(_PATCH_STEPS)).reshape(-1, 1)
    halves = np.array([[0, 1, side], [1, side + 1, side]])
    quads = (corner[:, None] + halves).reshape(-1, 3)
    vertices, triangles = [], []
    for row in range(0, control.shape[0] - 2, 2):
        for column in range(0, control.shape[1] - 2, 2):
            nine = control[row : row + 3, column : column + 3]
            triangles.append(quads + len(vertices) * side * side)
            vertices.append(
                np.einsum("ai,bj,ijc->abc", basis, basis, nine).reshape(side * side, -1)
            )
    return np.concatenate(vertices), np.concatenate(triangles)


def read_map(
    files: GameFiles, name: str, shaders: dict[str, tuple[set[str], list[str]]]
) -> MapMesh:
    """Read ``maps/NAME.bsp`` without sky, liquids and transparent surfaces."""
    data = files.read(f"maps/{name}.bsp")
    if data[:8] != b"IBSP" + struct.pack("<i", 46):
        raise ValueError(f"maps/{name}.bsp is not a version 46 IBSP file")
    lumps = [struct.unpack_from("<ii", data, 8 + 8 * i) for i in range(17)]

    def lump(index: int, dtype: np.dtype | str) -> np.ndarray:
        offset, length = lumps[index]
        dtype = np.dtype(dtype)
        return np.frombuffer(data, dtype, length // dtype.itemsize, offset)

    textures, vertices, indices = lump(1, _TEXTURE), lump(10, _VERTEX), lump(11, "<i4")
    names = [n.split(b"\0")[0].decode("latin1").lower() for n in textures["name"]]
    features = np.concatenate(
        [vertices["position"], vertices["uv"], vertices["light_uv"], vertices["color"][:, :3]],
        axis=1,
    ).astype(np.float32)
    parts, triangles, texture_ids, light_ids, count = [], [], [], [], 0
    for face in lump(13, _FACE):
        flags = textures["flags"][face["texture"]]
        properties = shaders.get(names[face["texture"]], (set(), []))[0]
        if flags & (_SURFACE_NODRAW | _SURFACE_SKY) or properties & _INVISIBLE:
            continue
        own = features[face["vertex"] : face["vertex"] + face["num_vertices"]]
        if face["kind"] in (_POLYGON, _MESH):
            faces = indices[face["index"] : face["index"] + face["num_indices"]].reshape(-1, 3)
        elif face["kind"] == _PATCH and min(face["patch_size"]) >= 3:
            width, height = face["patch_size"]
            own, faces = _tessellate(own.reshape(height, width, -1))
        else:
            continue
        parts.append(own)
        triangles.append(faces + count)
        texture_ids += [face["texture"]] * len(faces)
        light_ids += [face["lightmap"]] * len(faces)
        count += len(own)
    merged = np.concatenate(parts).astype(np.float32)
    return MapMesh(
        positions=merged[:, :3] / UNITS_PER_METRE,
        uv=merged[:, 3:5],
        light_uv=merged[:, 5:7],
        colors=merged[:, 7:10].clip(0, 255).astype(np.uint8),
        triangles=np.concatenate(triangles).astype(np.int32),
        texture_ids=np.array(texture_ids, np.int32),
        light_ids=np.array(light_ids, np.int32),
        texture_names=names,
        lightmaps=_lightmaps(files, name, lump(14, "u1").reshape(-1, 128, 128, 3)),
        places=_places(data[lumps[0][0] : lumps[0][0] + lumps[0][1]].decode("latin1")),
    )


def _lightmaps(files: GameFiles, name: str, within: np.ndarray) -> np.ndarray:
    """Lightmaps ``within`` the map's file, or else the images beside it.

    Of the images, those that no face refers to may hold light's directions (deluxe maps).
    """
    beside = files.names(f"maps/{name}/lm_", ".tga")
    if len(within) or not beside:
        return within
    return np.stack([Image.open(io.BytesIO(files.read(n))).convert("RGB") for n in beside])


def _places(entities: str) -> np.ndarray:
    found = []
    for block in re.findall(r"\{[^}]*\}", entities):
        values = dict(re.findall(r'"([^"]*)"\s+"([^"]*)"', block))
        kind = values.get("classname", "")
        if kind.startswith(("info_player", "team_", "item_", "weapon_")) and "origin" in values:
            found.append([float(x) for x in values["origin"].split()])
    return np.array(found, np.float32).reshape(-1, 3) / UNITS_PER_METRE


def compact(mesh: MapMesh) -> MapMesh:
    """Merge equal vertices and leave out what is not shown; half precision where it serves."""
    # A map may refer to lightmaps that its game lacks; those faces have light by vertex as well.
    mapped = (mesh.light_ids >= 0) & (mesh.light_ids < len(mesh.lightmaps))
    by_vertex = np.zeros((len(mesh.positions), 1), bool)
    by_vertex[mesh.triangles[~mapped]] = True
    light_uv, colors = np.where(by_vertex, 0, mesh.light_uv), np.where(by_vertex, mesh.colors, 0)
    rows = np.concatenate([mesh.positions, mesh.uv, light_uv, colors], axis=1)
    unique, inverse = np.unique(rows.astype(np.float32), axis=0, return_inverse=True)
    used, texture_ids = np.unique(mesh.texture_ids, return_inverse=True)
    lights = np.unique(mesh.light_ids[mapped])
    return dataclasses.replace(
        mesh,
        positions=unique[:, :3],
        uv=unique[:, 3:5],
        light_uv=unique[:, 5:7].astype(np.float16),
        colors=unique[:, 7:10].astype(np.uint8),
        triangles=inverse.reshape(-1)[mesh.triangles].astype(np.int32),
        texture_ids=texture_ids.astype(np.int16),
        light_ids=np.where(mapped, np.searchsorted(lights, mesh.light_ids), -1).astype(np.int16),
        texture_names=[mesh.texture_names[i] for i in used],
        lightmaps=mesh.lightmaps[lights],
    )
