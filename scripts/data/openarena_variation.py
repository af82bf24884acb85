# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Maps of other proportions, in other materials and under another sky.

There are some dozens of maps, and a network that sees each a thousand times learns how far away the
things in it are by what they look like. Where looks say nothing, depth has to come from motion.
"""

import math
from typing import NamedTuple

import numpy as np

_STRETCH = math.log(1.4)  # of each axis
_TILING = math.log(2.0)  # of each material
_CORNERS = ("positions", "uv", "light_uv", "colors")


class Variation(NamedTuple):
    """Another map made of a map."""

    stretch: np.ndarray  # [3] factors along x, y, z
    materials: np.ndarray  # [M] indices into all images there are
    tiling: np.ndarray  # [M] repetitions of the image in place of one
    sky: np.ndarray  # [3] float32 colour


def draw_variation(rng: np.random.Generator, materials: int, images: int) -> Variation:
    """Draw one for a map of so many materials, out of so many images."""
    return Variation(
        stretch=np.exp(rng.uniform(-_STRETCH, _STRETCH, 3)),
        materials=rng.integers(images, size=materials),
        tiling=np.exp(rng.uniform(-_TILING, _TILING, materials)),
        sky=rng.uniform(40, 255, 3).astype(np.float32),
    )


def vary_mesh(mesh: dict[str, np.ndarray], variation: Variation) -> dict[str, np.ndarray]:
    """Mesh (see ``openarena_maps.MapMesh``) of the other map; its light is that of the old one."""
    triangles = mesh["triangles"]
    # Triangles of several materials may share vertices.
    own = {name: mesh[name][triangles].reshape(3 * len(triangles), -1) for name in _CORNERS}
    own["positions"] = (own["positions"] * variation.stretch).astype(np.float32)
    own["uv"] = own["uv"] * np.repeat(variation.tiling[mesh["texture_ids"]], 3)[:, None]
    corners = np.arange(3 * len(triangles), dtype=np.int32).reshape(-1, 3)
    return {**mesh, **own, "triangles": corners}


def vary_poses(poses: np.ndarray, variation: Variation) -> np.ndarray:
    """Camera-to-world poses ``[S, 4, 4]`` at the same places of the other map."""
    poses = poses.copy()
    poses[:, :3, 3] *= variation.stretch
    return poses
