# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Free-standing things made of primitives: crates, tables, ramps, boards, pillars, pipes, balls.

Each stands on a round spot of a given radius, so that placing it needs no more than a distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .world import BOXES, CYLINDERS, World

Array = NDArray[np.float64]


@dataclass
class Placer:
    """Hands out the primitives of a world in order."""

    world: World
    rng: np.random.Generator
    ceiling: float = 0.0
    next_box: int = 0
    next_cylinder: int = BOXES
    next_sphere: int = BOXES + CYLINDERS

    def put(self, index: int, centre, half, rotation: Array | None = None) -> None:
        """Give primitive ``index`` a centre [3], half sizes [3] and axes [3,3]."""
        self.world.centre[index], self.world.half[index] = centre, half
        if rotation is not None:
            self.world.rotation[index] = rotation

    def box(self, centre, half, rotation: Array | None = None) -> None:
        """Use the next box."""
        self.put(self.next_box, centre, half, rotation)
        self.next_box += 1

    def cylinder(self, centre, half, rotation: Array | None = None) -> None:
        """Use the next cylinder."""
        self.put(self.next_cylinder, centre, half, rotation)
        self.next_cylinder += 1

    def sphere(self, centre, radius: float) -> None:
        """Use the next sphere."""
        self.put(self.next_sphere, centre, [radius] * 3)
        self.next_sphere += 1


def yaw_rotation(angle: float) -> Array:
    """Rotation [3,3] about the vertical."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def _pitch_rotation(angle: float) -> Array:
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])


def crate(place: Placer, spot: Array, radius: float, turn: Array) -> None:
    """A box of any slimness."""
    slim = place.rng.uniform(0.5, 1.0)
    half = np.array([math.cos(slim), math.sin(slim), place.rng.uniform(0.5, 1.3)]) * radius
    place.box([*spot, half[2]], half, turn)


def crates(place: Placer, spot: Array, radius: float, turn: Array) -> None:
    """A smaller box, turned a little, on a larger one."""
    base = radius * np.array([0.7, 0.7, place.rng.uniform(0.4, 0.8)])
    top = base * place.rng.uniform(0.4, 0.75, 3)
    place.box([*spot, base[2]], base, turn)
    twist = yaw_rotation(place.rng.uniform(-0.4, 0.4))
    place.box([*spot, 2 * base[2] + top[2]], top, turn @ twist)


def table(place: Placer, spot: Array, radius: float, turn: Array) -> None:
    """A table top on two side panels."""
    length, depth, height = radius * 0.88, radius * 0.46, place.rng.uniform(0.45, 0.8)
    place.box([*spot, height], [length, depth, 0.025], turn)
    panel = (height - 0.025) / 2
    for side in (-1.0, 1.0):
        foot = spot + turn[:2, 0] * side * (length - 0.08)
        place.box([*foot, panel], [0.03, depth * 0.85, panel], turn)


def ramp(place: Placer, spot: Array, radius: float, turn: Array) -> None:
    """A slope that rises out of the floor."""
    slope = place.rng.uniform(0.2, 0.6)
    length, thickness = radius * 0.85, 0.6 * radius
    axes = turn @ _pitch_rotation(-slope)
    surface = np.array([*spot, length * math.sin(slope)])
    place.box(surface - axes[:, 2] * thickness, [length, radius * 0.5, thickness], axes)


def board(place: Placer, spot: Array, radius: float, turn: Array) -> None:
    """A slanted board."""
    lean, tall = place.rng.uniform(0.15, 0.5), place.rng.uniform(0.5, 0.9)
    axes = turn @ _pitch_rotation(lean)
    place.box([*spot, tall * math.cos(lean)], [0.03, radius * 0.85, tall], axes)


def pillar(place: Placer, spot: Array, radius: float, turn: Array) -> None:
    """A round column up to the ceiling."""
    half = place.ceiling / 2
    place.cylinder([*spot, half], [radius, radius, half], turn)


def bin_(place: Placer, spot: Array, radius: float, turn: Array) -> None:
    """A round bin or barrel."""
    half = radius * place.rng.uniform(0.8, 1.8)
    place.cylinder([*spot, half], [radius, radius, half], turn)


def pipe(place: Placer, spot: Array, radius: float, turn: Array) -> None:
    """A cylinder lying on the floor."""
    thick = radius * place.rng.uniform(0.15, 0.4)
    axes = turn @ _pitch_rotation(math.pi / 2)
    place.cylinder([*spot, thick], [thick, thick, radius * 0.9], axes)


def ball(place: Placer, spot: Array, radius: float, turn: Array) -> None:
    """A ball on the floor."""
    place.sphere([*spot, radius], radius)


def lamp(place: Placer, spot: Array, radius: float, turn: Array) -> None:
    """A globe under the ceiling."""
    place.sphere([*spot, place.ceiling - 1.3 * radius], radius)


Maker = Callable[[Placer, Array, float, Array], None]
# What to place, and the range of its radius in metres; sums to at most 14 boxes, 5 cylinders
# and 4 spheres.
FURNITURE: tuple[tuple[Maker, float, float], ...] = (
    *((crate, 0.2, 0.65),) * 4,
    *((crates, 0.3, 0.7),) * 2,
    (table, 0.6, 1.0),
    *((ramp, 0.6, 1.3),) * 2,
    (board, 0.4, 0.7),
    *((pillar, 0.1, 0.3),) * 2,
    *((bin_, 0.12, 0.35),) * 2,
    (pipe, 0.4, 0.9),
    *((ball, 0.12, 0.45),) * 3,
    (lamp, 0.12, 0.3),
)
