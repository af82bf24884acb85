# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Variations of maps are maps: surfaces, materials and camera poses stay together."""

import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts" / "data"
sys.path.insert(0, str(SCRIPTS))

from openarena_variation import draw_variation, vary_mesh, vary_poses  # noqa: E402


@pytest.fixture
def mesh():
    """Two squares of different materials that share an edge."""
    rng = np.random.default_rng(0)
    return {
        "positions": rng.normal(size=(6, 3)).astype(np.float32),
        "uv": rng.normal(size=(6, 2)).astype(np.float32),
        "light_uv": rng.random((6, 2)).astype(np.float16),
        "colors": rng.integers(0, 256, (6, 3), np.uint8),
        "triangles": np.array([[0, 1, 2], [1, 3, 2], [2, 3, 4], [3, 5, 4]], np.int32),
        "texture_ids": np.array([0, 0, 1, 1], np.int16),
        "light_ids": np.array([0, -1, 0, -1], np.int16),
    }


def test_every_triangle_keeps_its_light_and_gets_its_materials_tiling(mesh):
    variation = draw_variation(np.random.default_rng(1), materials=2, images=50)
    other = vary_mesh(mesh, variation)

    def corners(m, name):
        return m[name][m["triangles"]].astype(np.float64)

    np.testing.assert_allclose(
        corners(other, "positions"), corners(mesh, "positions") * variation.stretch, rtol=1e-6
    )
    tiling = variation.tiling[mesh["texture_ids"]][:, None, None]
    np.testing.assert_allclose(corners(other, "uv"), corners(mesh, "uv") * tiling, rtol=1e-6)
    for name in ("light_uv", "colors"):
        np.testing.assert_array_equal(corners(other, name), corners(mesh, name))
    for name in ("texture_ids", "light_ids"):
        np.testing.assert_array_equal(other[name], mesh[name])


def test_a_camera_that_saw_a_point_at_its_place_sees_it_there(mesh):
    variation = draw_variation(np.random.default_rng(2), materials=2, images=50)
    poses = np.tile(np.eye(4, dtype=np.float32), (3, 1, 1))
    poses[:, :3, 3] = mesh["positions"][:3]
    moved = vary_poses(poses, variation)
    np.testing.assert_allclose(
        moved[:, :3, 3], vary_mesh(mesh, variation)["positions"][:3], rtol=1e-6
    )
    np.testing.assert_array_equal(moved[:, :3, :3], poses[:, :3, :3])


def test_variations_differ_and_stay_in_bounds():
    rng = np.random.default_rng(3)
    drawn = [draw_variation(rng, materials=30, images=50) for _ in range(20)]
    stretch = np.stack([v.stretch for v in drawn])
    assert np.all((stretch > 0.7) & (stretch < 1.42)) and stretch.std() > 0.1
    assert {int(i) for v in drawn for i in v.materials} == set(range(50))
    assert all(v.sky.shape == (3,) and v.sky.min() >= 40 for v in drawn)
