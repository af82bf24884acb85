# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
r"""Pack game maps and camera tracks into a folder small enough to carry to a GPU machine.

The maps of OpenArena and Nexuiz come from Debian (GPL-2+; neither the maps nor rendered frames
belong in the repository)::

    apt-get download openarena-081-maps openarena-081-textures openarena-085-data \
        openarena-088-data openarena-data openarena-oacmp1 nexuiz-data nexuiz-textures
    for f in *.deb; do dpkg -x $f game; done
    python scripts/data/openarena_pack.py game/usr/share/games/openarena/baseoa oapack \
        --nexuiz game/usr/share/games/nexuiz/data

Needs the extra packages embreex, scipy and pillow.
"""

import argparse
import dataclasses
import io
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from openarena_files import GameFiles, material_image, read_shaders
from openarena_maps import compact, read_map
from openarena_render import TEXTURE_SIZE, MapScene
from openarena_tracks import find_track
from PIL import Image

TRACK_FRAMES = 160
# In turn: walks that are filmed, and longer ones of which every second or third image is kept.
_LEAPS = (1, 2, 1, 3)
_MIN_TRIANGLES, _MAX_TRIANGLES = 1000, 60000
# The first two are maps of OpenArena too (aggressor and dm6ish), the others are no places.
_NEXUIZ_LEFT_OUT = frozenset(
    ("aggressor", "darkzone", "_init", "racetrack", "turret_test", "tutorial", "walker_pathtest2")
)


@dataclass(frozen=True)
class Game:
    """A folder of ``.pk3`` archives, the tracks wanted of each map, and how it is packed."""

    folder: Path
    tracks: int
    prefix: str = ""
    left_out: frozenset[str] = frozenset()
    light_jpeg: dict[str, int] = field(default_factory=lambda: {"quality": 85})


def nexuiz(folder: Path, tracks: int) -> Game:
    """Nexuiz, whose maps all are for training."""
    # Faces lie close in its lightmaps: with chroma subsampled, one's colour tints another.
    light_jpeg = {"quality": 90, "subsampling": 0}
    return Game(folder, tracks, "nexuiz_", _NEXUIZ_LEFT_OUT, light_jpeg)


def jpeg(image: np.ndarray, **options: int) -> bytes:
    """Encode an RGB image as JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "jpeg", **options)
    return buffer.getvalue()


def pack_game(game: Game, output: Path, textures: dict[str, bytes]) -> None:
    """Write ``MAP.npz`` for every usable map of a game, and add the materials' JPEG images."""
    files = GameFiles(game.folder)
    shaders = read_shaders(files)
    for path in files.names("maps/", ".bsp"):
        if Path(path).stem in game.left_out:
            continue
        name = game.prefix + Path(path).stem
        mesh = compact(read_map(files, Path(path).stem, shaders))
        if not _MIN_TRIANGLES < len(mesh.triangles) < _MAX_TRIANGLES:
            continue
        images = [material_image(files, n, shaders, TEXTURE_SIZE) for n in mesh.texture_names]
        scene = MapScene(dataclasses.asdict(mesh), np.stack(images))
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        leaps = [_LEAPS[number % len(_LEAPS)] for number in range(game.tracks)]
        found = [(find_track(scene, mesh.places, rng, TRACK_FRAMES * n), n) for n in leaps]
        tracks = [track[::leap] for track, leap in found if track is not None]
        print(f"{name}: {len(mesh.triangles)} triangles, {len(tracks)} tracks", flush=True)
        if not tracks:
            continue
        materials = [game.prefix + material for material in mesh.texture_names]
        for material, image in zip(materials, images):
            textures.setdefault(material, jpeg(image, quality=80))
        arrays = dataclasses.asdict(mesh)
        lights = [jpeg(light, **game.light_jpeg) for light in mesh.lightmaps]
        arrays["lightmaps"] = np.array(lights, object)
        arrays["texture_names"] = np.array(materials)
        np.savez_compressed(output / f"{name}.npz", tracks=np.stack(tracks), **arrays)


def main() -> None:
    """Write ``MAP.npz`` for every usable map and ``textures.npz`` for all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("baseoa", type=Path, help="folder with OpenArena's .pk3 archives")
    parser.add_argument("output", type=Path)
    parser.add_argument("--tracks", type=int, default=8, help="tracks wanted of each map")
    parser.add_argument("--nexuiz", type=Path, help="folder with Nexuiz's .pk3 archives")
    parser.add_argument("--nexuiz-tracks", type=int, default=6, help="of each of its maps")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    games = [Game(args.baseoa, args.tracks)]
    if args.nexuiz:
        games.append(nexuiz(args.nexuiz, args.nexuiz_tracks))
    textures: dict[str, bytes] = {}
    for game in games:
        pack_game(game, args.output, textures)
    np.savez(
        args.output / "textures.npz",
        names=np.array(list(textures)),
        images=np.array(list(textures.values()), object),
    )


if __name__ == "__main__":
    main()
