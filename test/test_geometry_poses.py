# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Pose encoding against the golden vectors, and the laws that rotations obey."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from lingbot_map_ros.geometry.poses import (
    decode_pose,
    encode_pose,
    intrinsics_from_fov,
    invert,
    is_valid_pose,
    make_pose,
    matrix_to_quaternion,
    nearest_rotation,
    quaternion_to_matrix,
    rotation_angle,
)

LAYERS = Path(__file__).parent / "data" / "golden" / "layers"
SIZE = (294, 518)

number = st.floats(-1, 1, allow_nan=False)
quaternions = st.tuples(number, number, number, number).filter(
    lambda q: sum(x * x for x in q) > 1e-3
)
vectors = st.tuples(*[st.floats(-50, 50)] * 3)


def golden(name):
    with np.load(LAYERS / f"{name}.npz") as file:
        return {key: file[key] for key in file}


def check(got, want):
    np.testing.assert_allclose(np.asarray(got), want, atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_golden_pose(kind):
    case = golden("pose")
    T, fov = decode_pose(kind(case["in.pose_enc"]))
    K = intrinsics_from_fov(fov, SIZE)
    check(T[..., :3, :], case["out.rt"])
    check(K, case["out.intrinsics"])
    check(encode_pose(T, K, SIZE), case["out.reencoded"])
    assert type(T) is type(kind(case["out.rt"]))


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_golden_quaternion(kind):
    case = golden("quaternion")
    check(quaternion_to_matrix(kind(case["in.q"])), case["out.matrix"])
    check(matrix_to_quaternion(kind(case["out.matrix"])), case["out.q"])


def test_inverted_or_mirrored_pose_is_not_the_golden_one():
    case = golden("pose")
    T, _ = decode_pose(case["in.pose_enc"])
    inverted = invert(T)[..., :3, :]
    mirrored = (T @ np.diag([-1.0, 1, 1, 1]))[..., :3, :]
    for wrong in (inverted, mirrored):
        with pytest.raises(AssertionError):
            check(wrong, case["out.rt"])
    assert np.all(np.linalg.det(T[..., :3, :3]) > 0.999)


def test_a_camera_looking_left_has_its_axes_and_centre_in_world_coordinates():
    # A quarter turn about y (down): the optical axis leaves z and points along world x.
    q = [0, math.sin(math.pi / 4), 0, math.cos(math.pi / 4)]
    T, fov = decode_pose([1, 2, 3, *q, 0.8, 1.0])
    np.testing.assert_allclose(T @ [0, 0, 5, 1], [6, 2, 3, 1], atol=1e-12)
    np.testing.assert_allclose(T @ [1, 0, 0, 1], [1, 2, 2, 1], atol=1e-12)
    K = intrinsics_from_fov(fov, (60, 80))
    assert K[1, 1] == pytest.approx(30 / math.tan(0.4))
    assert K[0, 0] == pytest.approx(40 / math.tan(0.5))
    assert (K[0, 2], K[1, 2]) == (40, 30)


@given(quaternions, vectors, st.floats(0.2, 2.5), st.floats(0.2, 2.5))
@settings(max_examples=200, deadline=None)
def test_encoding_round_trip(q, t, fov_h, fov_w):
    pose_enc = np.array([*t, *q, fov_h, fov_w])
    T, fov = decode_pose(pose_enc)
    again = encode_pose(T, intrinsics_from_fov(fov, SIZE), SIZE)
    unit = np.array(q) / np.linalg.norm(q)
    assert abs(again[3:7] @ unit) == pytest.approx(1, abs=1e-9)
    assert again[6] >= 0
    assert np.linalg.norm(again[3:7]) == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(again[[0, 1, 2, 7, 8]], pose_enc[[0, 1, 2, 7, 8]], atol=1e-9)


@given(quaternions, quaternions, vectors, vectors)
@settings(max_examples=200, deadline=None)
def test_rigid_transforms_form_a_group(q1, q2, t1, t2):
    A = make_pose(quaternion_to_matrix(q1), np.array(t1))
    B = make_pose(quaternion_to_matrix(q2), np.array(t2))
    np.testing.assert_allclose(A @ invert(A), np.eye(4), atol=1e-9)
    np.testing.assert_allclose(invert(A @ B), invert(B) @ invert(A), atol=1e-9)
    np.testing.assert_allclose(A[:3, :3], Rotation.from_quat(q1).as_matrix(), atol=1e-9)


@given(quaternions)
@settings(max_examples=200, deadline=None)
def test_rotation_angle_is_that_of_scipy(q):
    R = Rotation.from_quat(q)
    assert rotation_angle(R.as_matrix()) == pytest.approx(R.magnitude(), abs=1e-7)


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 1.0, math.pi - 1e-6, math.pi])
def test_rotation_angle_keeps_its_digits_at_both_ends(angle):
    R = Rotation.from_rotvec([0, angle, 0]).as_matrix()
    assert rotation_angle(R) == pytest.approx(angle, rel=1e-6, abs=1e-15)


def test_nearest_rotation_repairs_drift_and_never_mirrors():
    R = Rotation.random(50, random_state=3).as_matrix()
    noisy = R + np.random.default_rng(0).normal(0, 1e-3, R.shape)
    repaired = nearest_rotation(noisy)
    np.testing.assert_allclose(
        repaired @ repaired.swapaxes(-1, -2), np.eye(3)[None] + 0 * R, atol=1e-12
    )
    assert rotation_angle(repaired @ R.swapaxes(-1, -2)).max() < 5e-3
    assert np.linalg.det(nearest_rotation(R @ np.diag([1.0, 1, -1]))).min() > 0.999
    check(nearest_rotation(torch.from_numpy(noisy)), repaired)


def test_what_is_not_a_pose():
    good = np.array([0, 0, 0, 0, 0, 0, 1, 1.0, 1.0])
    bad = np.tile(good, (5, 1))
    bad[0, 8] = 0  # the ReLU's zero: an infinite focal length
    bad[1, 3:7] = 0
    bad[2, 0] = np.nan
    bad[3, 7] = 3.2
    bad[4, 5] = np.inf
    assert is_valid_pose(good)
    assert not is_valid_pose(bad).any()
    assert not is_valid_pose(torch.from_numpy(bad)).any()
    assert np.isinf(intrinsics_from_fov(bad[0, 7:], SIZE)[0, 0])
