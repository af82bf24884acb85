# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Render the packed OpenArena tracks to clips for training and evaluation, on all CPU cores.

Each track becomes one ``.npz``: ``images [S, H, W, 3]`` uint8, ``depth [S, H, W]`` float16 metres
(0 where sky), ``poses [S, 4, 4]`` camera-to-world, ``focal [2]`` (x, y) pixels. Every eighth map is
held out: its clips go to ``held_out/``, the others' to ``train/``.
"""

import argparse
import io
import math
import multiprocessing
import zlib
from pathlib import Path

import numpy as np
from openarena_render import MapScene
from PIL import Image

HELD_OUT_EVERY = 8
_MEAN_BRIGHTNESS = (80.0, 130.0)


def load_scene(folder: Path, name: str) -> tuple[MapScene, np.ndarray]:
    """Load the scene of a packed map and its tracks ``[T, S, 4, 4]``."""
    # The packs are made by openarena_pack.py on the user's own machine; they hold JPEG bytes.
    packed = np.load(folder / f"{name}.npz", allow_pickle=True)
    textures = np.load(folder / "textures.npz", allow_pickle=True)
    by_name = dict(zip(textures["names"], textures["images"]))

    def decode(data: bytes) -> np.ndarray:
        return np.asarray(Image.open(io.BytesIO(data)))

    mesh = {key: packed[key] for key in packed.files}
    mesh["lightmaps"] = np.array([decode(j) for j in packed["lightmaps"]], np.uint8)
    images = np.stack([decode(by_name[n]) for n in packed["texture_names"]])
    return MapScene(mesh, images), packed["tracks"]


def sample_focal(rng: np.random.Generator, size: tuple[int, int]) -> tuple[float, float]:
    """Draw focal lengths (x, y); one camera in five has its image squeezed to ``size``."""
    height, width = size
    slope = math.tan(math.radians(rng.uniform(48, 100)) / 2)
    aspect = rng.uniform(1.25, 1.85) if rng.random() < 0.2 else width / height
    return width / 2 / slope, height / 2 * aspect / slope


def render_map(job: tuple[Path, Path, str, bool, tuple[int, int], int, int, int]) -> str:
    """Render all tracks of a map; returns a line for the log."""
    folder, output, name, held_out, size, stride, samples, most = job
    scene, tracks = load_scene(folder, name)
    tracks = tracks[:most]
    target = output / ("held_out" if held_out else "train")
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for number, track in enumerate(tracks):
        focal = sample_focal(rng, size)
        frames = [scene.render(pose, focal, size, samples) for pose in track[::stride]]
        images = np.stack([image for image, _ in frames]).astype(np.float32)
        gain = rng.uniform(*_MEAN_BRIGHTNESS) / max(images.mean(), 1)
        partial = target / f".{name}_{number}.npz"
        np.savez(
            partial,
            images=(images * gain).clip(0, 255).astype(np.uint8),
            depth=np.stack([depth for _, depth in frames]).astype(np.float16),
            poses=track[::stride],
            focal=np.array(focal, np.float32),
        )
        partial.rename(target / f"{name}_{number}.npz")
    return f"{name}: {len(tracks)} tracks"


def main() -> None:
    """Render every packed map."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pack", type=Path, help="folder written by openarena_pack.py")
    parser.add_argument("output", type=Path)
    parser.add_argument("--height", type=int, default=126)
    parser.add_argument("--width", type=int, default=210)
    parser.add_argument("--stride", type=int, default=1, help="render every so many-th pose")
    parser.add_argument("--samples", type=int, default=2, help="rays per pixel and axis")
    parser.add_argument("--tracks", type=int, default=100, help="at most so many tracks of a map")
    parser.add_argument("--held-out", action="store_true", help="only the held-out maps")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    args = parser.parse_args()
    for part in ("train", "held_out"):
        (args.output / part).mkdir(parents=True, exist_ok=True)
    names = sorted(p.stem for p in args.pack.glob("*.npz") if p.stem != "textures")
    size = (args.height, args.width)
    jobs = [
        (
            args.pack,
            args.output,
            name,
            i % HELD_OUT_EVERY == 0,
            size,
            args.stride,
            args.samples,
            args.tracks,
        )
        for i, name in enumerate(names)
        if not args.held_out or i % HELD_OUT_EVERY == 0
    ]
    with multiprocessing.Pool(args.workers) as pool:
        for line in pool.imap_unordered(render_map, jobs):
            print(line, flush=True)


if __name__ == "__main__":
    main()
