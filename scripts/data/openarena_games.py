# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The games whose maps are packed: each map as a mesh, with the images of its materials."""

import dataclasses
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from doom_files import Wad, WadImages
from doom_level import read_level
from doom_maps import material_image as doom_image
from doom_maps import read_doom_map
from openarena_files import GameFiles, material_image, read_shaders
from openarena_maps import MapMesh, compact, read_map
from openarena_render import TEXTURE_SIZE
from PIL import Image

# The first two are maps of OpenArena too (aggressor and dm6ish), the others are no places.
_NEXUIZ_LEFT_OUT = frozenset(
    ("aggressor", "darkzone", "_init", "racetrack", "turret_test", "tutorial", "walker_pathtest2")
)
# Its sky is so low that walks lead over the walls, out of the map.
_FREEDOOM_LEFT_OUT = frozenset(("freedoom_dm_map25",))
_FREEDOOM_WADS = {"freedoom1.wad": "1", "freedoom2.wad": "2", "freedm.wad": "dm"}


class GameMap(NamedTuple):
    """A map as it is packed."""

    mesh: MapMesh
    images: list[np.ndarray]  # [size, size, 3] uint8 of each of the mesh's materials


class Game(NamedTuple):
    """How to load each map of a game, the tracks wanted of each, and how light is packed."""

    maps: dict[str, Callable[[], GameMap]]
    tracks: int
    light_jpeg: dict[str, int]


def openarena(folder: Path, tracks: int) -> Game:
    """OpenArena, from a folder of ``.pk3`` archives."""
    return Game(_quake_maps(folder, "", frozenset()), tracks, {"quality": 85})


def nexuiz(folder: Path, tracks: int) -> Game:
    """Nexuiz, whose maps all are for training, from a folder of ``.pk3`` archives."""
    # Faces lie close in its lightmaps: with chroma subsampled, one's colour tints another.
    light_jpeg = {"quality": 90, "subsampling": 0}
    return Game(_quake_maps(folder, "nexuiz_", _NEXUIZ_LEFT_OUT), tracks, light_jpeg)


def freedoom(folder: Path, tracks: int) -> Game:
    """Freedoom, whose maps all are for training, from a folder with its three ``.wad`` files."""
    maps: dict[str, Callable[[], GameMap]] = {}
    for file, short in _FREEDOOM_WADS.items():
        wad = Wad(folder / file)
        images = WadImages(wad)
        for name, lumps in wad.maps().items():
            maps[f"freedoom_{short}_{name.lower()}"] = partial(_doom_map, name, lumps, images)
    kept = {name: load for name, load in maps.items() if name not in _FREEDOOM_LEFT_OUT}
    return Game(kept, tracks, {"quality": 85})


def _quake_maps(
    folder: Path, prefix: str, left_out: frozenset[str]
) -> dict[str, Callable[[], GameMap]]:
    files = GameFiles(folder)
    shaders = read_shaders(files)

    def load(name: str) -> GameMap:
        mesh = compact(read_map(files, name, shaders))
        images = [material_image(files, n, shaders, TEXTURE_SIZE) for n in mesh.texture_names]
        names = [prefix + material for material in mesh.texture_names]
        return GameMap(dataclasses.replace(mesh, texture_names=names), images)

    names = [Path(path).stem for path in files.names("maps/", ".bsp")]
    return {prefix + name: partial(load, name) for name in names if name not in left_out}


def _doom_map(name: str, lumps: dict[str, bytes], images: WadImages) -> GameMap:
    mesh = compact(read_doom_map(read_level(name, lumps), images))
    pixels = [doom_image(images, material) for material in mesh.texture_names]
    # Some names stand for another image in another of the files.
    names = [
        f"freedoom_{material.lower()}_{zlib.crc32(image.tobytes()):08x}"
        for material, image in zip(mesh.texture_names, pixels)
    ]
    size = (TEXTURE_SIZE, TEXTURE_SIZE)
    scaled = [np.asarray(Image.fromarray(p).resize(size, Image.Resampling.BOX)) for p in pixels]
    return GameMap(dataclasses.replace(mesh, texture_names=names), scaled)
