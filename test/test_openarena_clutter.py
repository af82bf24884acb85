# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Objects added to a map are seen, in front of it, and never in the cameras' way."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("embreex", reason="rendering maps needs embreex (x86-64)")
SCRIPTS = Path(__file__).resolve().parents[1] / "scripts" / "data"
sys.path.insert(0, str(SCRIPTS))

from openarena_clutter import add_clutter  # noqa: E402
from openarena_render import MapScene  # noqa: E402
from openarena_tracks import look_poses  # noqa: E402

IMAGES = 40


@pytest.fixture(scope="module")
def hall():
    """A hall of 16 x 8 x 4 m, one triangle of each wall lit by vertex and one by lightmap."""
    corners = np.array([[x, y, z] for x in (-8, 8) for y in (-4, 4) for z in (0, 4)], np.float32)
    quads = [[0, 1, 3, 2], [4, 5, 7, 6], [0, 1, 5, 4], [2, 3, 7, 6], [0, 2, 6, 4], [1, 3, 7, 5]]
    return {
        "positions": corners,
        "uv": corners[:, :2] + corners[:, 2:],
        "light_uv": np.full((8, 2), 0.5, np.float16),
        "colors": np.full((8, 3), 80, np.uint8),
        "triangles": np.array(
            [t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))], np.int32
        ),
        "texture_ids": np.repeat([0, 1], 6).astype(np.int16),
        "light_ids": np.tile([-1, 0], 6).astype(np.int16),
        "texture_names": np.array(["a", "b"]),
        "lightmaps": np.full((1, 16, 16, 3), 60, np.uint8),
    }


@pytest.fixture(scope="module")
def track():
    x = np.linspace(-6, 4, 60)
    centres = np.stack([x, np.sin(x), np.full_like(x, 1.5)], axis=1)
    return look_poses(centres, 0.3 * np.cos(x), np.zeros(60), np.zeros(60)).astype(np.float32)


def clutter(hall, track, seed):
    scene = MapScene(hall, images(0))
    return add_clutter(np.random.default_rng(seed), hall, scene, track, IMAGES)


def images(more):
    return np.random.default_rng(0).integers(0, 256, (2 + more, 128, 128, 3), np.uint8)


def distance_to_triangle(point, triangle):
    """Smallest distance to the points of a fine grid on a triangle."""
    i, j = np.meshgrid(np.linspace(0, 1, 41), np.linspace(0, 1, 41))
    inside = i + j <= 1 + 1e-9
    a, b, c = triangle
    points = a + i[inside][:, None] * (b - a) + j[inside][:, None] * (c - a)
    return np.linalg.norm(points - point, axis=1).min()


def test_the_same_seed_gives_the_same_objects_and_another_others(hall, track):
    first, materials = clutter(hall, track, 1)
    again, same = clutter(hall, track, 1)
    other, _ = clutter(hall, track, 2)
    np.testing.assert_array_equal(materials, same)
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert len(other["positions"]) != len(first["positions"]) or np.any(
        other["positions"] != first["positions"]
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_map_stays_and_the_arrays_stay_consistent(hall, track, seed):
    mesh, materials = clutter(hall, track, seed)
    assert mesh.keys() == hall.keys()
    for name in hall:
        assert mesh[name].dtype == hall[name].dtype
        np.testing.assert_array_equal(mesh[name][: len(hall[name])], hall[name])
    vertices = len(mesh["positions"])
    assert all(len(mesh[name]) == vertices for name in ("uv", "light_uv", "colors"))
    faces = len(mesh["triangles"])
    assert len(mesh["texture_ids"]) == len(mesh["light_ids"]) == faces
    assert len(hall["triangles"]) < faces <= len(hall["triangles"]) + 3000
    assert mesh["triangles"].min() == 0 and mesh["triangles"].max() == vertices - 1
    own = mesh["texture_ids"][len(hall["triangles"]) :]
    assert own.min() >= 0
    # Every material that is added is that of an object, and some objects are of the walls'.
    assert set(own[own >= 2]) == set(range(2, 2 + len(materials))) and (own < 2).any()
    assert materials.min() >= 0 and materials.max() < IMAGES
    assert np.all(mesh["light_ids"][len(hall["triangles"]) :] == -1)
    assert np.all(np.isfinite(mesh["positions"])) and np.all(np.isfinite(mesh["uv"]))


@pytest.mark.parametrize("seed", range(3))
def test_no_object_is_in_the_way_of_a_camera(hall, track, seed):
    mesh, _ = clutter(hall, track, seed)
    own = mesh["positions"][mesh["triangles"][len(hall["triangles"]) :]].astype(np.float64)
    for pose in track[::6]:
        assert min(distance_to_triangle(pose[:3, 3], triangle) for triangle in own) > 0.45


def test_objects_are_seen_lit_in_front_of_the_walls_and_hide_some_of_them(hall, track):
    shares, seen = [], []
    for seed in range(6):
        mesh, materials = clutter(hall, track, seed)
        empty, full = MapScene(hall, images(0)), MapScene(mesh, images(len(materials)))
        for pose in track[::15]:
            before = empty.render(pose, (40, 40), (36, 60), 1)[1]
            image, after = full.render(pose, (40, 40), (36, 60), 1)
            assert np.all(after <= before + 1e-3)
            changed = after < before - 1e-3
            shares.append(changed.mean())
            seen.append(image[changed].mean() if changed.any() else np.nan)
    assert 0.05 < np.mean(shares) < 0.6
    assert np.nanmin(seen) > 5
