# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
r"""Pack the OpenArena maps and camera tracks into a folder small enough to carry to a GPU machine.

The maps come from Debian (GPL-2+; neither the maps nor rendered frames belong in the repository)::

    apt-get download openarena-081-maps openarena-081-textures openarena-085-data \
        openarena-088-data openarena-data openarena-oacmp1
    for f in *.deb; do dpkg -x $f game; done
    python scripts/data/openarena_pack.py game/usr/share/games/openarena/baseoa oapack

Needs the extra packages embreex, scipy and pillow.
"""

import argparse
import dataclasses
import io
import zlib
from pathlib import Path

import numpy as np
from openarena_maps import GameFiles, MapMesh, material_image, read_map, read_shaders
from openarena_render import TEXTURE_SIZE, MapScene
from openarena_tracks import find_track
from PIL import Image

TRACK_FRAMES = 160
# In turn: walks that are filmed, and longer ones of which every second or third image is kept.
_LEAPS = (1, 2, 1, 3)
_MIN_TRIANGLES, _MAX_TRIANGLES = 1000, 60000


def jpeg(image: np.ndarray, quality: int) -> bytes:
    """Encode an RGB image as JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "jpeg", quality=quality)
    return buffer.getvalue()


def compact(mesh: MapMesh) -> MapMesh:
    """Merge equal vertices, keep the textures in use; half precision where it serves."""
    rows = np.concatenate([mesh.positions, mesh.uv, mesh.light_uv, mesh.colors], axis=1)
    unique, inverse = np.unique(rows.astype(np.float32), axis=0, return_inverse=True)
    used, texture_ids = np.unique(mesh.texture_ids, return_inverse=True)
    return dataclasses.replace(
        mesh,
        positions=unique[:, :3],
        uv=unique[:, 3:5],
        light_uv=unique[:, 5:7].astype(np.float16),
        colors=unique[:, 7:10].astype(np.uint8),
        triangles=inverse.reshape(-1)[mesh.triangles].astype(np.int32),
        texture_ids=texture_ids.astype(np.int16),
        light_ids=mesh.light_ids.astype(np.int16),
        texture_names=[mesh.texture_names[i] for i in used],
    )


def main() -> None:
    """Write ``MAP.npz`` for every usable map and ``textures.npz`` for all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("baseoa", type=Path, help="folder with the game's .pk3 archives")
    parser.add_argument("output", type=Path)
    parser.add_argument("--tracks", type=int, default=8, help="tracks wanted of each map")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    files = GameFiles(args.baseoa)
    shaders = read_shaders(files)
    textures: dict[str, bytes] = {}
    for path in files.names("maps/", ".bsp"):
        name = Path(path).stem
        mesh = compact(read_map(files, name, shaders))
        if not _MIN_TRIANGLES < len(mesh.triangles) < _MAX_TRIANGLES:
            continue
        images = [material_image(files, n, shaders, TEXTURE_SIZE) for n in mesh.texture_names]
        scene = MapScene(dataclasses.asdict(mesh), np.stack(images))
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        leaps = [_LEAPS[number % len(_LEAPS)] for number in range(args.tracks)]
        found = [(find_track(scene, mesh.places, rng, TRACK_FRAMES * n), n) for n in leaps]
        tracks = [track[::leap] for track, leap in found if track is not None]
        print(f"{name}: {len(mesh.triangles)} triangles, {len(tracks)} tracks", flush=True)
        if not tracks:
            continue
        for material, image in zip(mesh.texture_names, images):
            textures.setdefault(material, jpeg(image, 80))
        arrays = dataclasses.asdict(mesh)
        arrays["lightmaps"] = np.array([jpeg(light, 85) for light in mesh.lightmaps], object)
        arrays["texture_names"] = np.array(mesh.texture_names)
        np.savez_compressed(args.output / f"{name}.npz", tracks=np.stack(tracks), **arrays)
    np.savez(
        args.output / "textures.npz",
        names=np.array(list(textures)),
        images=np.array(list(textures.values()), object),
    )


if __name__ == "__main__":
    main()
