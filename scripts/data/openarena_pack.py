# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
r"""Pack game maps and camera tracks into a folder small enough to carry to a GPU machine.

The maps come from Debian (OpenArena and Nexuiz are under GPL-2+, Freedoom under a BSD licence;
neither the maps nor rendered frames belong in the repository)::

    apt-get download openarena-081-maps openarena-081-textures openarena-085-data \
        openarena-088-data openarena-data openarena-oacmp1 nexuiz-data nexuiz-textures \
        freedoom freedm
    for f in *.deb; do dpkg -x $f game; done
    python scripts/data/openarena_pack.py game/usr/share/games/openarena/baseoa oapack \
        --nexuiz game/usr/share/games/nexuiz/data --freedoom game/usr/share/games/doom

Needs the extra packages embreex, scipy and pillow.
"""

import argparse
import dataclasses
import io
import zlib
from pathlib import Path

import numpy as np
from doom_level import ExtendedNodesError
from openarena_games import Game, freedoom, nexuiz, openarena
from openarena_render import MapScene
from openarena_tracks import find_track
from PIL import Image

TRACK_FRAMES = 160
# In turn: walks that are filmed, and longer ones of which every second or third image is kept.
_LEAPS = (1, 2, 1, 3)
_MIN_TRIANGLES, _MAX_TRIANGLES = 1000, 60000


def jpeg(image: np.ndarray, **options: int) -> bytes:
    """Encode an RGB image as JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "jpeg", **options)
    return buffer.getvalue()


def pack_game(game: Game, output: Path, textures: dict[str, bytes]) -> None:
    """Write ``MAP.npz`` for every usable map of a game, and add the materials' JPEG images."""
    for name, load in game.maps.items():
        try:
            mesh, images = load()
        except ExtendedNodesError as reason:
            print(f"{name}: skipped, {reason}", flush=True)
            continue
        if not _MIN_TRIANGLES < len(mesh.triangles) < _MAX_TRIANGLES:
            continue
        scene = MapScene(dataclasses.asdict(mesh), np.stack(images))
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        leaps = [_LEAPS[number % len(_LEAPS)] for number in range(game.tracks)]
        found = [(find_track(scene, mesh.places, rng, TRACK_FRAMES * n), n) for n in leaps]
        tracks = [track[::leap] for track, leap in found if track is not None]
        print(f"{name}: {len(mesh.triangles)} triangles, {len(tracks)} tracks", flush=True)
        if not tracks:
            continue
        for material, image in zip(mesh.texture_names, images):
            textures.setdefault(material, jpeg(image, quality=80))
        arrays = dataclasses.asdict(mesh)
        lights = [jpeg(light, **game.light_jpeg) for light in mesh.lightmaps]
        arrays["lightmaps"] = np.array(lights, object)
        arrays["texture_names"] = np.array(mesh.texture_names)
        np.savez_compressed(output / f"{name}.npz", tracks=np.stack(tracks), **arrays)


def main() -> None:
    """Write ``MAP.npz`` for every usable map and ``textures.npz`` for all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "baseoa", type=Path, nargs="?", help="folder with OpenArena's .pk3 archives"
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--tracks", type=int, default=8, help="tracks wanted of each map")
    parser.add_argument("--nexuiz", type=Path, help="folder with Nexuiz's .pk3 archives")
    parser.add_argument("--nexuiz-tracks", type=int, default=6, help="of each of its maps")
    parser.add_argument("--freedoom", type=Path, help="folder with Freedoom's .wad files")
    parser.add_argument("--freedoom-tracks", type=int, default=5, help="of each of its maps")
    args = parser.parse_args()
    games = []
    if args.baseoa:
        games.append(openarena(args.baseoa, args.tracks))
    if args.nexuiz:
        games.append(nexuiz(args.nexuiz, args.nexuiz_tracks))
    if args.freedoom:
        games.append(freedoom(args.freedoom, args.freedoom_tracks))
    if not games:
        parser.error("no folder of any game")
    args.output.mkdir(parents=True, exist_ok=True)
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
