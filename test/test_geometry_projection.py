# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Lifting, projecting and the motion rule."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from lingbot_map_ros.geometry.poses import decode_pose, intrinsics_from_fov, invert, make_pose
from lingbot_map_ros.geometry.projection import (
    mean_induced_flow,
    project,
    transform_points,
    unproject,
)

LAYERS = Path(__file__).parent / "data" / "golden" / "layers"
K = np.array([[80.0, 0, 56], [0, 90, 35], [0, 0, 1]])


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_golden_flow(kind):
    with np.load(LAYERS / "flow.npz") as case:
        current, keyframe = kind(case["in.current"]), kind(case["in.keyframe"])
        depth, want = kind(case["in.depth"]), case["out.flow"]
    cameras = []
    for pose_enc in (current, keyframe):
        T, fov = decode_pose(pose_enc)
        cameras.append((intrinsics_from_fov(fov, depth.shape[-2:]), T))
    (K_cur, T_cur), (K_key, T_key) = cameras
    got = [
        mean_induced_flow(depth[i], K_cur[i], T_cur[i], K_key[i], T_key[i])
        for i in range(len(want))
    ]
    np.testing.assert_allclose(got, want, atol=2e-5, rtol=2e-4)
    assert want[1] == 0
    inverted = mean_induced_flow(depth[0], K_cur[0], invert(T_cur[0]), K_key[0], invert(T_key[0]))
    assert abs(inverted - want[0]) > 1


def test_flow_ignores_broken_depth_and_averages_a_batch():
    depth = np.full((2, 70, 112), 4.0, np.float32)
    T = np.stack([make_pose(np.eye(3), [x, 0.0, 0]) for x in (0.2, 0.6)])
    keyframe = np.tile(np.eye(4), (2, 1, 1))
    # A sideways step of x moves every pixel by fx * x / depth.
    assert mean_induced_flow(depth, K, T, keyframe_K=K, keyframe_T=keyframe) == pytest.approx(8)
    depth[0, ::2] = np.nan
    depth[1, ::16] = np.inf
    assert np.isfinite(mean_induced_flow(depth, K, T, K, keyframe))
    assert mean_induced_flow(depth * np.nan, K, T, K, keyframe) == 0


@pytest.mark.parametrize("stride", [1, 3])
def test_projecting_lifted_depth_gives_the_pixels_back(stride):
    depth = np.random.default_rng(1).uniform(0.5, 9, (31, 47)).astype(np.float32)
    points = unproject(depth, K, stride)
    assert points.dtype == np.float32
    np.testing.assert_array_equal(points[..., 2], depth[::stride, ::stride])
    v, u = np.mgrid[0:31:stride, 0:47:stride]
    np.testing.assert_allclose(project(points, K), np.stack((u, v), -1), atol=1e-3)
    np.testing.assert_allclose(
        unproject(torch.from_numpy(depth), torch.from_numpy(K), stride).numpy(), points, rtol=1e-6
    )


def test_the_principal_point_lifts_onto_the_optical_axis():
    depth = np.full((70, 112), 2.0)
    np.testing.assert_array_equal(unproject(depth, K)[35, 56], [0, 0, 2])
    right_below = unproject(depth, K)[36, 57]
    assert right_below[0] > 0
    assert right_below[1] > 0


def test_transform_points_moves_into_the_world():
    T = make_pose(Rotation.from_euler("y", 90, degrees=True).as_matrix(), np.array([1.0, 2, 3]))
    np.testing.assert_allclose(
        transform_points(T, np.array([[0.0, 0, 5], [1, 0, 0]])), [[6, 2, 3], [1, 2, 2]], atol=1e-12
    )


def test_points_behind_the_camera_give_finite_pixels():
    assert np.isfinite(project(np.array([[1.0, 1, -3], [0, 0, 0]]), K)).all()
