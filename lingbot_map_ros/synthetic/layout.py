# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Build a world around a camera path: rooms, corridors, walls with doorways, furniture.

Everything is placed at a distance from the path, so no camera ever enters or grazes an object.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from numpy.typing import NDArray

from . import world as w
from .furniture import FURNITURE, Placer, yaw_rotation
from .trajectory import Path
from .world import World

WALL_CELLS, CABINETS, POSTERS, BEAMS = 8, 5, 5, 2
CLEARANCE = 0.45
_CANDIDATES = 12
_CORNERS = tuple(product((True, False), repeat=2))

Array = NDArray[np.float64]


def build_world(
    rng: np.random.Generator,
    path: Path,
    kind: str,
    difficulty: float,
    procedural: int,
    photographs: int = 0,
) -> World:
    """Build a world in which the path is free by CLEARANCE; the last three as of ``dress``."""
    plan = _Plan(rng, path, kind)
    plan.fill_corners()
    wall = plan.place.next_box
    plan.divide()
    free = plan.place.next_box
    plan.put_cabinets()
    plan.furnish()
    plan.put_beams()
    posters = plan.place.next_box
    plan.hang_posters()
    w.dress(plan.world, rng, procedural, photographs, difficulty)
    w.share_surfaces(plan.world, wall, free)
    w.print_posters(plan.world, rng, posters, plan.place.next_box, procedural)
    return plan.world


class _Plan:
    """The floor plan: the track of the path, the shell around it, and what was placed."""

    def __init__(self, rng: np.random.Generator, path: Path, kind: str) -> None:
        self.rng, self.kind, self.world = rng, kind, World()
        floor = path.position[:, :2]
        steps = np.linalg.norm(np.diff(floor, axis=0), axis=1)
        travelled = np.concatenate([np.zeros(1), np.cumsum(steps)])
        at = np.linspace(0.0, travelled[-1], int(travelled[-1] / 0.12) + 2)
        self.track = np.stack([np.interp(at, travelled, c) for c in floor.T], -1)
        self.highest = float(path.position[:, 2].max())
        self.place = Placer(self.world, rng)
        self._enclose(path)

    def _enclose(self, path: Path) -> None:
        rng, corridor = self.rng, self.kind == "corridor"
        if corridor:
            margin = np.tile(rng.uniform(0.65, 1.1, (2, 1)), (1, 2))
            for end, sign, reach in ((0, -1.0, (0.8, 3.0)), (-1, 1.0, (2.5, 8.0))):
                yaw = path.angles[end, 0]
                ahead = sign * np.array([math.cos(yaw), math.sin(yaw)])
                axis = int(np.abs(ahead).argmax())
                margin[int(ahead[axis] > 0), axis] = rng.uniform(*reach)
        else:
            margin = rng.uniform(0.8, rng.choice([1.6, 3.0, 4.5]), (2, 2))
        low, high = self.track.min(0) - margin[0], self.track.max(0) + margin[1]
        lack = np.maximum(0.0, (1.6 if corridor else 3.6) - (high - low))
        self.low, self.high = low - lack / 2, high + lack / 2
        self.ceiling = max(rng.uniform(2.4, 4.2), self.highest + 0.8)
        self.place.ceiling = self.ceiling
        centre, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        z = self.ceiling / 2
        self.place.put(w.PRIMITIVES - 1, [*centre, z], [*half, z])
        lights = self.track[rng.integers(0, len(self.track), w.LIGHTS)]
        lights = np.clip(lights + rng.normal(0, 1.5, lights.shape), self.low + 0.2, self.high - 0.2)
        height = self.ceiling - rng.uniform(0.15, 0.5, w.LIGHTS)
        self.world.light_position[:] = np.column_stack([lights, height])

    def _distance(self, centre: Array, half: Array) -> Array:
        """Distance [...] from the track to axis-aligned rectangles, centre and half [...,2]."""
        outside = np.abs(self.track - centre[..., None, :]) - half[..., None, :]
        return np.linalg.norm(np.maximum(outside, 0.0), axis=-1).min(-1)

    def fill_corners(self) -> None:
        """Blocks that fill corners, and the middle of a loop, as far as the path leaves room."""
        corridor = self.kind == "corridor"
        share = np.linspace(0.06, 0.94 if corridor else 0.45, 9)
        extent = np.array(list(product(share, share))) * (self.high - self.low)
        centres = [
            np.where(corner, self.low + extent / 2, self.high - extent / 2) for corner in _CORNERS
        ]
        middle = (self.track.min(0) + self.track.max(0)) / 2
        for centre in [*centres, np.broadcast_to(middle, extent.shape)]:
            chance = 1.0 if corridor else 0.4
            room, low_block = self.rng.uniform(0.65, 1.0), self.rng.random() < 0.4
            if self.rng.random() > chance:
                continue
            fits = self._distance(centre, extent / 2) > room
            area = np.where(fits, extent.prod(-1), 0.0)
            best = int(area.argmax())
            if area[best] > 0.25:
                low_block = low_block and not corridor
                z = (self.rng.uniform(0.5, 1.4) if low_block else self.ceiling) / 2
                self.place.box([*centre[best], z], [*extent[best] / 2, z])

    def divide(self) -> None:
        """A wall across the room in cells; where the path passes, a cell is only a lintel."""
        rng, size = self.rng, self.high - self.low
        lintel = max(2.05, self.highest + 0.4)
        if self.kind in ("corridor", "rotate") or rng.random() < 0.4 or lintel > self.ceiling - 0.1:
            return
        along = int(rng.integers(2))
        across = 1 - along
        half, centre = np.empty((WALL_CELLS, 2)), np.empty((WALL_CELLS, 2))
        half[:, along], half[:, across] = size[along] / (2 * WALL_CELLS), rng.uniform(0.05, 0.12)
        centre[:, along] = self.low[along] + half[0, along] * (2 * np.arange(WALL_CELLS) + 1)
        centre[:, across] = self.low[across] + rng.uniform(0.25, 0.75) * size[across]
        solid = self._distance(centre, half) > CLEARANCE
        for c, h, full in zip(centre, half, solid):
            bottom = 0.0 if full else lintel
            z = (self.ceiling - bottom) / 2
            self.place.box([*c, bottom + z], [*h, z])

    def _against_shell(self, depth: Array, width: Array) -> tuple[Array, Array]:
        """Rectangles (centre, half [n,2]) with their backs to the shell, clear of the path."""
        rng, shape = self.rng, (len(depth), _CANDIDATES)
        facing = rng.integers(0, 2, shape)[..., None] == np.arange(2)
        half = np.where(facing, depth[:, None, None], width[:, None, None])
        span = self.high - self.low - 2 * half
        centre = self.low + half + rng.random((*shape, 2)) * np.maximum(span, 0.0)
        far = rng.integers(0, 2, shape)[..., None] == 1
        centre = np.where(facing, np.where(far, self.high - half, self.low + half), centre)
        free = (self._distance(centre, half) > CLEARANCE) & (span > 0).all(-1)
        pick, rows = free.argmax(1), np.arange(len(depth))
        found = free[rows, pick]
        return centre[rows, pick][found], half[rows, pick][found]

    def put_cabinets(self) -> None:
        """Cabinets, shelves and recess-like boxes along the shell."""
        depth, width = (self.rng.uniform(*r, CABINETS) for r in ((0.12, 0.35), (0.25, 1.0)))
        for c, h in zip(*self._against_shell(depth, width)):
            z = self.rng.uniform(0.4, 2.1) / 2
            self.place.box([*c, z], [*h, z])

    def hang_posters(self) -> None:
        """Thin boards on the shell, to be printed on."""
        width = self.rng.uniform(0.2, 0.7, POSTERS)
        for c, h in zip(*self._against_shell(np.full(POSTERS, 0.012), width)):
            tall = min(0.9, h.max() * self.rng.uniform(0.7, 1.4))
            self.place.box([*c, self.rng.uniform(1.1, 1.5)], [*h, tall])

    def put_beams(self) -> None:
        """Beams under the ceiling."""
        middle, size = (self.low + self.high) / 2, (self.high - self.low) / 2
        for axis in self.rng.integers(0, 2, BEAMS):
            drop = self.rng.uniform(0.08, 0.2)
            half, centre = size.copy(), middle.copy()
            half[axis] = self.rng.uniform(0.06, 0.18)
            centre[axis] += self.rng.uniform(-0.9, 0.9) * (size[axis] - half[axis])
            self.place.box([*centre, self.ceiling - drop], [*half, drop])

    def furnish(self) -> None:
        """Put the furniture beside the path, where its round footprint finds room."""
        rng = self.rng
        radius = np.array([rng.uniform(low, high) for _, low, high in FURNITURE])
        shape = (len(radius), _CANDIDATES)
        origin = self.track[rng.integers(0, len(self.track), shape)]
        away = CLEARANCE + radius[:, None] + rng.gamma(1.5, 0.7, shape)
        angle = rng.uniform(0, 2 * math.pi, shape)
        spot = origin + away[..., None] * np.stack([np.cos(angle), np.sin(angle)], -1)
        inside = ((spot > self.low + 0.1) & (spot < self.high - 0.1)).all(-1)
        free = inside & (self._distance(spot, np.zeros(2)) > CLEARANCE + radius[:, None])
        pick, rows = free.argmax(1), np.arange(len(radius))
        turns = rng.uniform(0, 2 * math.pi, len(radius))
        for k in rows[free[rows, pick]]:
            FURNITURE[k][0](self.place, spot[k, pick[k]], radius[k], yaw_rotation(turns[k]))
