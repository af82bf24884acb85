# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A world as arrays: convex primitives inside a shell, what their surfaces look like, lights.

The number of primitives is fixed, so that worlds can be stacked into batches of one static shape.
Each primitive is the image of a unit cube [-1,1]^3, unit cylinder (axis z) or unit sphere under an
affine map; unused ones are tiny and lie far below the floor.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .textures import cells, noise, patches, planks, terrazzo, text, texture_ids

BOXES, CYLINDERS, SPHERES = 40, 5, 4
PRIMITIVES = BOXES + CYLINDERS + SPHERES + 1  # the last one is the shell, a box seen from inside
LIGHTS = 3
FACES = 3  # side, top, bottom

# Columns of a surface: three texture layers (index, tiles per metre), their contrast, a tint, and
# the offset of the texture in the primitive's own metric axes.
(BASE, DETAIL, MACRO, BASE_FREQUENCY, DETAIL_FREQUENCY, MACRO_FREQUENCY) = range(6)
DETAIL_CONTRAST, MACRO_CONTRAST = 6, 7
TINT, OFFSET = slice(8, 11), slice(11, 14)
SURFACE_COLUMNS = 14

Array = NDArray[np.float64]


@dataclass
class World:
    """Arrays of one world.

    Attributes
    ----------
    rotation, half, centre:
        [P,3,3], [P,3], [P,3]: axes of each primitive in the world, half sizes and centre in metres;
        boxes first, then cylinders, spheres and the shell.
    surfaces:
        [P,FACES,SURFACE_COLUMNS].
    light_position, light_colour:
        [LIGHTS,3] each; ``ambient`` [3].
    """

    rotation: Array = field(default_factory=lambda: np.tile(np.eye(3), (PRIMITIVES, 1, 1)))
    half: Array = field(default_factory=lambda: np.full((PRIMITIVES, 3), 0.01))
    centre: Array = field(default_factory=lambda: np.tile([0.0, 0.0, -50.0], (PRIMITIVES, 1)))
    surfaces: Array = field(default_factory=lambda: np.zeros((PRIMITIVES, FACES, SURFACE_COLUMNS)))
    light_position: Array = field(default_factory=lambda: np.zeros((LIGHTS, 3)))
    light_colour: Array = field(default_factory=lambda: np.zeros((LIGHTS, 3)))
    ambient: Array = field(default_factory=lambda: np.zeros(3))

    def local_affine(self) -> Array:
        """Maps [P,3,4] from homogeneous world points to the unit primitive."""
        linear = np.swapaxes(self.rotation, 1, 2) / self.half[..., None]
        return np.concatenate([linear, -linear @ self.centre[..., None]], -1)

    def clearance(self, points: Array) -> Array:
        """Distance [n] from points [n,3] to the nearest surface; negative inside a primitive."""
        local = np.einsum("npi,pij->npj", points[:, None] - self.centre, self.rotation)
        excess = np.abs(local) - self.half
        box = np.linalg.norm(np.maximum(excess, 0), axis=-1) + np.minimum(excess.max(-1), 0)
        radial = np.linalg.norm(local[..., :2], axis=-1) - self.half[:, 0]
        tall = np.stack([radial, excess[..., 2]], -1)
        cylinder = np.linalg.norm(np.maximum(tall, 0), axis=-1) + np.minimum(tall.max(-1), 0)
        sphere = np.linalg.norm(local, axis=-1) - self.half[:, 0]
        end = BOXES + CYLINDERS
        parts = [box[:, :BOXES], cylinder[:, BOXES:end], sphere[:, end:-1], -box[:, -1:]]
        return np.concatenate(parts, -1).min(-1)


def dress(
    world: World, rng: np.random.Generator, procedural: int, photographs: int, difficulty: float
) -> None:
    """Choose textures, tints and scales for every surface, and the colours of the lights.

    The bank holds ``procedural`` textures (as of ``procedural_bank``) and then ``photographs``.
    """
    shape = (PRIMITIVES, FACES)
    surfaces = world.surfaces
    base = rng.integers(0, procedural, shape)
    if photographs:
        photo = procedural + rng.integers(0, photographs, shape)
        base = np.where(rng.random(shape) < 0.7, photo, base)
    surfaces[..., BASE] = base
    grain = np.concatenate([texture_ids(m, procedural) for m in (noise, terrazzo, planks)])
    coarse = np.concatenate([texture_ids(m, procedural) for m in (noise, patches, cells)])
    surfaces[..., DETAIL] = rng.choice(grain, shape)
    surfaces[..., MACRO] = rng.choice(coarse, shape)
    surfaces[..., BASE_FREQUENCY] = 1.0 / rng.uniform(0.9, 2.8, shape)
    surfaces[..., DETAIL_FREQUENCY] = 1.0 / rng.uniform(0.25, 0.6, shape)
    surfaces[..., MACRO_FREQUENCY] = 1.0 / rng.uniform(5.0, 12.0, shape)
    surfaces[..., DETAIL_CONTRAST] = rng.uniform(0.25, 0.6, shape)
    surfaces[..., MACRO_CONTRAST] = rng.uniform(0.25, 0.55, shape)
    surfaces[..., TINT] = rng.uniform(0.75, 1.15, (*shape, 1)) * rng.uniform(0.88, 1.0, (*shape, 3))
    free = ~np.any(surfaces[..., OFFSET], -1)
    surfaces[..., OFFSET][free] = rng.uniform(0, 10, (*shape, 3))[free]

    warmth = rng.uniform(-0.15, 0.2, (LIGHTS, 1)) * np.array([1.0, 0.1, -1.0])
    strength = rng.uniform(1.0 - 0.7 * difficulty, 1.3, (LIGHTS, 1))
    world.light_colour[:] = strength * (1.0 + warmth)
    world.ambient[:] = rng.uniform(0.25, 0.5) * rng.uniform(0.9, 1.1, 3)


def share_surfaces(world: World, first: int, last: int) -> None:
    """Let the boxes first..last-1 look like one wall: same surface, textures fixed to the world."""
    world.surfaces[first:last] = world.surfaces[first]
    world.surfaces[first:last, :, OFFSET] = world.centre[first:last, None]


def print_posters(world: World, rng: np.random.Generator, first: int, last: int, procedural: int):
    """Give the boxes first..last-1 one printed page each."""
    count = last - first
    surface = world.surfaces[first:last]
    surface[..., BASE] = rng.choice(texture_ids(text, procedural), (count, 1))
    width = 2 * world.half[first:last].max(-1)
    surface[..., BASE_FREQUENCY] = (1.0 / width)[:, None]
    surface[..., OFFSET] = world.half[first:last, None]
    surface[..., MACRO_CONTRAST] = 0.1
    surface[..., DETAIL_CONTRAST] = 0.15
