# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Render the packed tracks to clips for training and evaluation, on all CPU cores.

Each track becomes one ``.npz``: ``images [S, H, W, 3]`` uint8, ``depth [S, H, W]`` float16 metres
(0 where sky), ``poses [S, 4, 4]`` camera-to-world, ``focal [2]`` (x, y) pixels.

The maps in HELD_OUT go to ``held_out/``, for the figures of the model card, those in VALIDATION to
``validation/``, for choices, the rest to ``train/``. Training clips are wider and finer than the
network's images, for training cuts the views of many cameras out of them, and most of them show a
variation of the map, with objects in it that the map does not have. Clips that are there are kept:
use another folder for another pack.
"""

import argparse
import io
import math
import multiprocessing
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from openarena_clutter import add_clutter
from openarena_render import MapScene
from openarena_variation import draw_variation, vary_mesh, vary_poses
from PIL import Image

PARTS = ("train", "validation", "held_out")
# By name: in how many maps the packing finds tracks depends on how many it looks for.
HELD_OUT = frozenset(
    (
        "aggressor",
        "am_thornish",
        "ctf_inyard",
        "hydronex2",
        "oa_bases3cl",
        "oa_dm1",
        "oa_koth2",
        "oa_thor",
        "oacmpdm5",
        "ps37ctf2",
        "suspended",
    )
)
VALIDATION = frozenset(("am_lavactf", "czest3ctf", "oa_bases7", "oa_rpg3dm2", "oacmpdm9"))
_MEAN_BRIGHTNESS = (80.0, 130.0)
_FINER = 1.5
_VARIED = 0.75  # Share of the training clips that show variations of the map.
# Grey levels: materials as dark or as plain as this are left out of variations.
_DARK, _PLAIN = 25.0, 5.0
# Degrees across the image.
_FOV, _WIDE_FOV = (48.0, 100.0), (65.0, 110.0)


def part_of(name: str) -> str:
    """Part that a map belongs to."""
    if name in HELD_OUT:
        return "held_out"
    return "validation" if name in VALIDATION else "train"


def load_map(folder: Path, name: str) -> dict[str, np.ndarray]:
    """Load a packed map: the arrays of ``MapMesh``, and ``tracks [T, S, 4, 4]``."""
    # The packs are made by openarena_pack.py on the user's own machine; they hold JPEG bytes.
    with np.load(folder / f"{name}.npz", allow_pickle=True) as packed:
        mesh = dict(packed)
    mesh["lightmaps"] = np.array([decode(j) for j in mesh["lightmaps"]], np.uint8)
    return mesh


def make_scene(
    mesh: dict[str, np.ndarray], folder: Path, track: np.ndarray, rng: np.random.Generator | None
) -> tuple[MapScene, np.ndarray]:
    """Scene and camera poses of a track through a map; ``rng``: through a cluttered variation."""
    if rng is None:
        images = load_materials(folder)
        chosen = np.stack([decode(images[name]) for name in mesh["texture_names"]])
        return MapScene(mesh, chosen), track
    pool = training_materials(folder)
    variation = draw_variation(rng, len(mesh["texture_names"]), len(pool))
    varied, poses = vary_mesh(mesh, variation), vary_poses(track, variation)
    empty = MapScene(varied, pool[variation.materials])
    cluttered, others = add_clutter(rng, varied, empty, poses, len(pool))
    materials = np.concatenate([variation.materials, others])
    return MapScene(cluttered, pool[materials], variation.sky), poses


@cache
def load_materials(folder: Path) -> dict[str, bytes]:
    """JPEG images of all materials by name."""
    with np.load(folder / "textures.npz", allow_pickle=True) as textures:
        return dict(zip(textures["names"], textures["images"]))


@cache
def training_materials(folder: Path) -> np.ndarray:
    """Images ``[N, side, side, 3]`` that variations are made of: those of the maps to train on."""
    names: set[str] = set()
    for path in map_files(folder):
        if part_of(path.stem) == "train":
            with np.load(path) as packed:
                names.update(packed["texture_names"].tolist())
    images = [decode(load_materials(folder)[name]) for name in sorted(names)]
    return np.stack([image for image in images if _shows_something(image)])


def map_files(folder: Path) -> list[Path]:
    """Packed maps of a folder, by name."""
    return sorted(path for path in folder.glob("*.npz") if path.stem != "textures")


def _shows_something(image: np.ndarray) -> bool:
    """Whether a surface of this material could be told from the next one, or from the dark."""
    return float(np.median(image)) > _DARK and float(image.std()) > _PLAIN


def decode(data: bytes) -> np.ndarray:
    """Pixels of a JPEG image."""
    return np.asarray(Image.open(io.BytesIO(data)))


def sample_focal(
    rng: np.random.Generator, size: tuple[int, int], fov: tuple[float, float], squeezed: float
) -> tuple[float, float]:
    """Draw focal lengths (x, y); the share ``squeezed`` of cameras has pixels of another shape."""
    height, width = size
    slope = math.tan(math.radians(rng.uniform(*fov)) / 2)
    aspect = rng.uniform(1.25, 1.85) if rng.random() < squeezed else width / height
    return width / 2 / slope, height / 2 * aspect / slope


@dataclass(frozen=True)
class Job:
    """Track ``number`` of a map, for the network's image size."""

    pack: Path
    target: Path
    name: str
    number: int
    size: tuple[int, int]


def render_track(job: Job) -> str:
    """Render a track, if the map has as many and it is not there; returns a line for the log."""
    path = job.target / f"{job.name}_{job.number}.npz"
    if path.exists():
        return f"{path.stem}: is there"
    mesh = load_map(job.pack, job.name)
    if job.number >= len(mesh["tracks"]):
        return f"{job.name}: no track {job.number}"
    rng = np.random.default_rng(zlib.crc32(job.name.encode()) + job.number)
    training = job.target.name == "train"
    varied = training and rng.random() < _VARIED
    scene, track = make_scene(mesh, job.pack, mesh["tracks"][job.number], rng if varied else None)
    if training:
        size = (round(_FINER * job.size[0]), round(_FINER * job.size[1]))
        # The views cut out of it average pixels, and are squeezed.
        focal, samples = sample_focal(rng, size, _WIDE_FOV, 0.0), 1
    else:
        size = job.size
        focal, samples = sample_focal(rng, size, _FOV, 0.2), 2
    frames = [scene.render(pose, focal, size, samples) for pose in track]
    images = np.stack([image for image, _ in frames]).astype(np.float32)
    gain = rng.uniform(*_MEAN_BRIGHTNESS) / max(images.mean(), 1)
    partial = job.target / f".{job.name}_{job.number}.npz"
    np.savez(
        partial,
        images=(images * gain).clip(0, 255).astype(np.uint8),
        depth=np.stack([depth for _, depth in frames]).astype(np.float16),
        poses=track,
        focal=np.array(focal, np.float32),
    )
    partial.rename(path)
    return f"{job.name}: track {job.number}"


def main() -> None:
    """Render every packed map."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pack", type=Path, help="folder written by openarena_pack.py")
    parser.add_argument("output", type=Path)
    parser.add_argument("--height", type=int, default=126)
    parser.add_argument("--width", type=int, default=210)
    parser.add_argument("--tracks", type=int, default=20, help="at most so many tracks of a map")
    parser.add_argument("--part", choices=("all", *PARTS), default="all")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    args = parser.parse_args()
    parts = {path.stem: part_of(path.stem) for path in map_files(args.pack)}
    if args.part != "all":
        parts = {name: part for name, part in parts.items() if part == args.part}
    for part in set(parts.values()):
        (args.output / part).mkdir(parents=True, exist_ok=True)
    # Each map's first track before any map's second: a training that waits sees all maps soon.
    jobs = [
        Job(args.pack, args.output / part, name, number, (args.height, args.width))
        for number in range(args.tracks)
        for name, part in parts.items()
    ]
    with multiprocessing.Pool(args.workers) as pool:
        for line in pool.imap_unordered(render_track, jobs):
            print(line, flush=True)


if __name__ == "__main__":
    main()
