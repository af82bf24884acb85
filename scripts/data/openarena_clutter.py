# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Solid objects that a map does not have, along a track through it.

A network that has learnt what maps look like gives a thing in front of a wall the wall's depth.
These objects stand where nothing stood, in any material, often in that of the wall behind them:
only parallax tells how far away they are.
"""

import math
from typing import NamedTuple

import numpy as np
from openarena_render import MapScene
from scipy.spatial.transform import Rotation

_COUNT = (12, 30)
_CANDIDATES = 16  # for each object: most would stand in the way of the cameras
_AZIMUTH, _ELEVATION = math.radians(45), math.radians(25)  # from the optical axis
_DISTANCE = (0.8, 12.0)  # metres from a camera
_SHARE = (0.25, 1.0)  # of the way to the surface behind
_SIZE = (0.25, 3.0)  # metres
_TILING = (0.3, 2.0)  # repetitions of the image a metre
_CLEARANCE = 0.5  # metres around each camera centre; the walls are as near as 0.45 m
_CLOSE = 2.5  # metres: what is nearer must be smaller than it is far away
_MAP_MATERIAL = 1 / 3  # share of the objects that are of the same material as what is behind them
_ON_FLOOR, _FLAT = 0.5, 0.2
_DARKEST = 12.0  # Vertex light under which a surface would be black.
_CONTRAST = (0.3, 0.8)


def _lathe(profile: list[tuple[float, float]], sides: int) -> np.ndarray:
    """Triangles ``[T, 3, 3]`` of a profile of (radius, height) turned about z in so many steps."""
    angles = 2 * np.pi * (np.arange(sides) + 0.5) / sides
    radii, heights = np.array(profile).T
    rings = np.stack(
        np.broadcast_arrays(
            radii[:, None] * np.cos(angles), radii[:, None] * np.sin(angles), heights[:, None]
        ),
        axis=-1,
    )
    a, b = rings[:-1], rings[1:]
    c, d = np.roll(a, -1, axis=1), np.roll(b, -1, axis=1)
    faces = np.stack([np.stack([a, c, b], axis=2), np.stack([c, d, b], axis=2)]).reshape(-1, 3, 3)
    # Where the profile starts and ends on the axis, one triangle of each pair has no area.
    return faces[np.linalg.norm(_cross(faces), axis=1) > 1e-9]


def _cross(faces: np.ndarray) -> np.ndarray:
    return np.cross(faces[:, 1] - faces[:, 0], faces[:, 2] - faces[:, 0])


# All within [-1, 1] along each axis.
_PRISMS = [_lathe([(0, -1), (1, -1), (1, 1), (0, 1)], sides) for sides in range(3, 17)]
_BOX = _PRISMS[1] * [math.sqrt(2), math.sqrt(2), 1]
_BALL = _lathe([(math.sin(t), -math.cos(t)) for t in np.linspace(0, math.pi, 7)], 10)


class _Light(NamedTuple):
    """Light on an object."""

    color: np.ndarray  # [3] vertex light, 0 to 255
    direction: np.ndarray  # [3] unit vector, where it comes from
    contrast: float  # 0 where all faces are lit alike


class _Part(NamedTuple):
    """Convex part of an object, in the object's axes."""

    shape: np.ndarray  # [T, 3, 3] triangles within [-1, 1]
    half: np.ndarray  # [3] metres
    offset: np.ndarray  # [3] metres from the object's centre


def _log_uniform(
    rng: np.random.Generator, bounds: tuple[float, float], size: int | None = None
) -> np.ndarray:
    return np.exp(rng.uniform(math.log(bounds[0]), math.log(bounds[1]), size))


def _draw_object(rng: np.random.Generator) -> tuple[list[_Part], bool]:
    """Parts of an object, and whether it is one that stands upright."""
    kind = rng.choice(["block", "pillar", "beam", "ball", "frame"], p=[0.3, 0.25, 0.2, 0.15, 0.1])
    half = _log_uniform(rng, _SIZE, 3) / 2
    shape, upright = _BOX, rng.random() < 0.5
    if kind == "frame":
        width, height = _log_uniform(rng, (0.8, 2.5), 2) / 2
        bar = _log_uniform(rng, (0.1, 0.4)) / 2
        post = np.array([bar, bar, height])
        return [
            _Part(_BOX, post, np.array([-width, 0, 0])),
            _Part(_BOX, post, np.array([width, 0, 0])),
            _Part(_BOX, np.array([width + bar, bar, bar]), np.array([0, 0, height - bar])),
        ], True
    if kind == "pillar":
        upright = True
        half[:2], half[2] = _log_uniform(rng, (0.2, 1.5)) / 2, _log_uniform(rng, (1, 6)) / 2
    elif kind == "beam":
        half = _log_uniform(rng, (0.1, 0.4), 3) / 2
        half[0] = _log_uniform(rng, (1, 5)) / 2
        if rng.random() < 0.5:
            half[1] = _log_uniform(rng, (0.4, 2.0)) / 2
    elif kind == "ball":
        shape = _BALL
        if rng.random() < 0.5:
            half[:] = half[0]
    if kind == "pillar" or (kind == "block" and rng.random() < 0.4):
        shape = _PRISMS[rng.integers(len(_PRISMS))]
    return [_Part(shape, half, np.zeros(3))], upright


def _in_the_way(parts: list[_Part], local: np.ndarray) -> bool:
    """Whether an object is too near or too large for cameras ``local [S, 3]``, in its axes."""
    for part in parts:
        outside = np.maximum(np.abs(local - part.offset) - part.half, 0)
        gap = np.linalg.norm(outside, axis=1).min()
        # Long thin things may pass by; it is the second longest side that fills the view.
        if gap < _CLEARANCE or gap < min(_CLOSE, 2 * np.sort(part.half)[1]):
            return True
    return False


def _draw_light(rng: np.random.Generator, behind: np.ndarray) -> _Light:
    """Light of an object in front of a surface that has the vertex light ``behind [3]``."""
    direction = rng.normal(size=3)
    # Some things do not show their shape by their light either.
    contrast = 0.0 if rng.random() < _FLAT else rng.uniform(*_CONTRAST)
    return _Light(
        color=np.maximum(behind, _DARKEST) * _log_uniform(rng, (0.7, 1.5)),
        direction=direction / np.linalg.norm(direction),
        contrast=contrast,
    )


def _corners(part: _Part, rotation: np.ndarray, light: _Light) -> dict[str, np.ndarray]:
    """Arrays of a part's corners: places in the object's axes, uv in metres on its faces."""
    faces = part.shape * part.half
    normals = _cross(faces)
    normals *= np.sign(np.einsum("ni,ni->n", normals, faces.mean(1)))[:, None]
    # Each face shows the image along the two axes that it is most parallel to.
    axes = np.array([[1, 2], [0, 2], [0, 1]])[np.abs(normals).argmax(1)]
    uv = np.take_along_axis(faces, np.repeat(axes[:, None], 3, axis=1), axis=2)
    normals = faces / part.half**2 if part.shape is _BALL else np.repeat(normals[:, None], 3, 1)
    normals = normals / np.linalg.norm(normals, axis=-1, keepdims=True)
    lit = 1.6 * np.maximum(normals @ (light.direction @ rotation), 0)
    shading = 1 - light.contrast + light.contrast * lit
    return {
        "positions": (faces + part.offset).reshape(-1, 3),
        "uv": uv.reshape(-1, 2),
        "colors": (shading.reshape(-1, 1) * light.color).clip(0, 255),
    }


class _Place(NamedTuple):
    """Where an object may be, in a camera's view."""

    centre: np.ndarray  # [3] metres
    floor: float  # metres, height of the ground below, infinitely low where there is none
    texture: int  # material of the surface behind
    light: np.ndarray  # [3] vertex light on that surface


def _draw_places(
    rng: np.random.Generator,
    mesh: dict[str, np.ndarray],
    scene: MapScene,
    poses: np.ndarray,
    count: int,
) -> list[_Place]:
    """Places in free space that cameras at some of the poses see."""
    poses = poses[rng.integers(len(poses), size=count)]
    azimuth = rng.uniform(-_AZIMUTH, _AZIMUTH, count)
    elevation = rng.uniform(-_ELEVATION, _ELEVATION, count)
    level = np.cos(elevation)
    rays = np.stack([np.sin(azimuth) * level, np.sin(elevation), np.cos(azimuth) * level], axis=-1)
    rays = np.einsum("nij,nj->ni", poses[:, :3, :3], rays)
    hit = scene.cast(poses[:, :3, 3], rays)
    free = np.where(hit["primID"] >= 0, hit["tfar"], np.inf)
    distance = np.minimum(_log_uniform(rng, _DISTANCE, count), free * rng.uniform(*_SHARE, count))
    centres = poses[:, :3, 3] + distance[:, None] * rays
    floor = centres[:, 2] - scene.distance(centres, np.tile([0.0, 0.0, -1.0], (count, 1)))
    # In front of the sky: the material and the light of any surface.
    surface = np.where(hit["primID"] >= 0, hit["primID"], rng.integers(len(mesh["triangles"])))
    textures, lights = mesh["texture_ids"][surface], scene.light({**hit, "primID": surface})
    return [_Place(*place) for place in zip(centres, floor, textures, lights)]


def add_clutter(
    rng: np.random.Generator,
    mesh: dict[str, np.ndarray],
    scene: MapScene,
    poses: np.ndarray,
    images: int,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Mesh of a map with objects that cameras at ``poses [S, 4, 4]`` see, none in their way.

    ``scene`` is that of the map's ``mesh``. Also returns which of so many images ``[K]`` follow
    those of the map as materials of the objects.
    """
    count = round(float(_log_uniform(rng, _COUNT)))
    parts: list[dict[str, np.ndarray]] = []
    materials: list[int] = []
    for place in _draw_places(rng, mesh, scene, poses, _CANDIDATES * count):
        shapes, upright = _draw_object(rng)
        turn = Rotation.from_euler("z", rng.uniform(0, 2 * np.pi))
        rotation = (turn if upright else Rotation.random(random_state=rng)).as_matrix()
        centre = place.centre.copy()
        if upright and rng.random() < _ON_FLOOR and np.isfinite(place.floor):
            centre[2] = place.floor + shapes[0].half[2]
        if _in_the_way(shapes, (poses[:, :3, 3] - centre) @ rotation):
            continue
        texture = place.texture
        if rng.random() >= _MAP_MATERIAL:
            texture = len(mesh["texture_names"]) + len(materials)
            materials.append(int(rng.integers(images)))
        light = _draw_light(rng, place.light)
        tiling, shift = _log_uniform(rng, _TILING), rng.random(2)
        for shape in shapes:
            part = _corners(shape, rotation, light)
            part["positions"] = part["positions"] @ rotation.T + centre
            part["uv"] = part["uv"] * tiling + shift
            part["light_uv"] = np.zeros_like(part["uv"])
            part["texture_ids"] = np.full(len(shape.shape), texture)
            part["light_ids"] = np.full(len(shape.shape), -1)
            parts.append(part)
        count -= 1
        if not count:
            break
    return _with_parts(mesh, parts), np.array(materials, np.int64)


def _with_parts(
    mesh: dict[str, np.ndarray], parts: list[dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Mesh with the triangles of parts, three corners each, after its own."""
    if not parts:
        return mesh
    merged = {
        name: np.concatenate([mesh[name], *(part[name] for part in parts)]).astype(mesh[name].dtype)
        for name in parts[0]
    }
    corners = np.arange(len(mesh["positions"]), len(merged["positions"])).reshape(-1, 3)
    triangles = np.concatenate([mesh["triangles"], corners]).astype(mesh["triangles"].dtype)
    return {**mesh, **merged, "triangles": triangles}
