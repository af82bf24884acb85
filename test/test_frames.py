# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Optical to REP-103 axes, by where a robot that drives forward, left and up ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.ros.frames import (
    BODY_FROM_OPTICAL,
    Axes,
    PoseError,
    base_pose,
    map_from_odom,
    parse_base_to_camera,
    pose_matrix,
    position_and_quaternion,
)

FORWARD_CAMERA = [0.0, 0.0, 0.0, -0.5, 0.5, -0.5, 0.5]
numbers = st.floats(-20, 20)


def turn(axis, degrees):
    """Right-handed rotation [4, 4] about an axis."""
    axis = np.array(axis, float) / np.linalg.norm(axis)
    x, y, z = axis
    C = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    angle = np.radians(degrees)
    T = np.eye(4)
    T[:3, :3] = np.eye(3) + np.sin(angle) * C + (1 - np.cos(angle)) * C @ C
    return T


def move(x, y, z):
    T = np.eye(4)
    T[:3, 3] = (x, y, z)
    return T


@st.composite
def poses(draw):
    axis = draw(st.tuples(numbers, numbers, numbers).filter(lambda a: np.linalg.norm(a) > 0.1))
    return move(*draw(st.tuples(numbers, numbers, numbers))) @ turn(
        axis, draw(st.floats(-180, 180))
    )


@pytest.mark.parametrize(
    ("optical", "body"),
    [((0, 0, 1), (1, 0, 0)), ((-1, 0, 0), (0, 1, 0)), ((0, -1, 0), (0, 0, 1))],
)
def test_forward_left_and_up(optical, body):
    np.testing.assert_array_equal(BODY_FROM_OPTICAL[:3, :3] @ optical, body)


def test_the_first_camera_is_the_origin_and_looks_along_x():
    first = move(3, -2, 5) @ turn((1, 2, 3), 70)
    pose = Axes.of_first_pose(first).camera_pose(first)
    np.testing.assert_allclose(pose, BODY_FROM_OPTICAL, atol=1e-12)
    position, quaternion = position_and_quaternion(pose)
    np.testing.assert_allclose(position, 0, atol=1e-12)
    np.testing.assert_allclose(quaternion, (-0.5, 0.5, -0.5, 0.5), atol=1e-12)


@given(first=poses())
def test_a_drive_forward_to_the_left_and_up(first):
    """Two ahead, one left, half up, then a left turn by 30 degrees, seen from any first pose."""
    base_from_camera = parse_base_to_camera(FORWARD_CAMERA)
    now = first @ move(-1.0, -0.5, 2.0) @ turn((0, -1, 0), 30)
    pose = base_pose(Axes.of_first_pose(first).camera_pose(now), base_from_camera)
    np.testing.assert_allclose(pose[:3, 3], (2.0, 1.0, 0.5), atol=1e-9)
    np.testing.assert_allclose(pose[:3, :3], turn((0, 0, 1), 30)[:3, :3], atol=1e-9)


def test_mirrored_and_inverted_poses_would_be_seen():
    """The mistakes that still look plausible on a straight drive give something else."""
    base_from_camera = parse_base_to_camera(FORWARD_CAMERA)
    now = move(-1.0, -0.5, 2.0) @ turn((0, -1, 0), 30)
    axes = Axes.of_first_pose(np.eye(4))
    right = base_pose(axes.camera_pose(now), base_from_camera)
    inverted = base_pose(axes.camera_pose(np.linalg.inv(now)), base_from_camera)
    assert np.abs(inverted - right).max() > 0.5
    wrong_order = base_from_camera @ np.linalg.inv(axes.camera_pose(now))
    assert np.abs(wrong_order - right).max() > 0.5
    for mirror in (np.diag([-1.0, 1, 1, 1]), np.diag([1.0, -1, 1, 1]), np.diag([-1.0, -1, -1, 1])):
        with pytest.raises(PoseError, match="mirrored"):
            axes.camera_pose(now @ mirror)


def test_a_tilted_and_displaced_camera():
    """A camera 1 m ahead and 0.5 m up, looking 90 degrees to the left, while the base drives."""
    yaw_left = move(1.0, 0, 0.5) @ turn((0, 0, 1), 90) @ BODY_FROM_OPTICAL
    position, quaternion = position_and_quaternion(yaw_left)
    base_from_camera = parse_base_to_camera([*position, *quaternion])
    first = np.eye(4)
    # The base drives 2 m ahead: to the right for this camera.
    pose = base_pose(Axes.of_first_pose(first).camera_pose(move(2.0, 0, 0)), base_from_camera)
    start = base_pose(Axes.of_first_pose(first).camera_pose(first), base_from_camera)
    np.testing.assert_allclose(np.linalg.inv(start) @ pose, move(2.0, 0, 0), atol=1e-12)


@given(first=poses(), pose=poses(), correction=poses(), scale=st.floats(0.01, 100))
def test_scale_never_enters_a_rotation(first, pose, correction, scale):
    unit, metric = Axes.of_first_pose(first), Axes.of_first_pose(first, scale)
    for a, b in (
        (unit.camera_pose(pose), metric.camera_pose(pose)),
        (unit.map_from_odom(correction), metric.map_from_odom(correction)),
    ):
        np.testing.assert_array_equal(a[:3, :3], b[:3, :3])
        np.testing.assert_allclose(a[:3, 3] * scale, b[:3, 3], rtol=1e-12, atol=1e-12)
        assert np.linalg.det(b[:3, :3]) == pytest.approx(1.0)


@given(first=poses(), pose=poses(), correction=poses(), scale=st.floats(0.1, 10))
def test_the_tree_closes(first, pose, correction, scale):
    """map -> odom -> base is map -> base, whatever the correction of the window switches."""
    axes = Axes.of_first_pose(first, scale)
    in_map = axes.camera_pose(correction @ pose)
    np.testing.assert_allclose(
        axes.map_from_odom(correction) @ axes.camera_pose(pose), in_map, atol=1e-8
    )
    other = move(1, 2, 3) @ turn((0, 0, 1), 40)
    np.testing.assert_allclose(map_from_odom(in_map, other) @ other, in_map, atol=1e-8)


@given(first=poses(), pose=poses(), scale=st.floats(0.1, 10))
def test_points_and_cameras_stay_together(first, pose, scale):
    axes = Axes.of_first_pose(first, scale)
    seen = np.array([[0.3, -0.2, 1.5], [2.0, 1.0, 4.0]])
    world = seen @ pose[:3, :3].T + pose[:3, 3]
    camera = axes.camera_pose(pose)
    np.testing.assert_allclose(
        axes.points(world), scale * seen @ camera[:3, :3].T + camera[:3, 3], atol=1e-8
    )
    assert axes.points(world.astype(np.float32)).dtype == np.float32
    assert axes.points(np.zeros((0, 3), np.float32)).shape == (0, 3)


@given(pose=poses())
def test_quaternions_come_back(pose):
    position, quaternion = position_and_quaternion(pose)
    assert quaternion[3] >= 0 and np.linalg.norm(quaternion) == pytest.approx(1.0)
    np.testing.assert_allclose(pose_matrix(position, quaternion), pose, atol=1e-9)


def test_base_to_camera_is_the_optical_frame_in_the_base():
    assert parse_base_to_camera([]) is None
    np.testing.assert_allclose(parse_base_to_camera(FORWARD_CAMERA), BODY_FROM_OPTICAL, atol=1e-12)
    rounded = parse_base_to_camera([0.1, 0, 0.3, -0.4999, 0.5002, -0.4998, 0.5001])
    assert np.linalg.det(rounded[:3, :3]) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_array_equal(rounded[:3, 3], (0.1, 0, 0.3))


@pytest.mark.parametrize(
    "values",
    [
        [0.0] * 7,
        [0, 0, 0, 0, 0, 0],
        [0.0] * 8,
        [0, 0, 0, 0, 0, 0, 2],
        [0, 0, float("nan"), 0, 0, 0, 1],
        [0, 0, 0, 0, 0, 0, float("inf")],
    ],
)
def test_a_bad_base_to_camera_is_refused(values):
    with pytest.raises(ConfigurationError, match="base_to_camera"):
        parse_base_to_camera(values)


@pytest.mark.parametrize(
    "pose",
    [
        np.full((4, 4), np.nan),
        2 * np.eye(4),
        np.diag([2.0, 2, 2, 1]),
        np.zeros((4, 4)),
        np.eye(3),
        np.vstack((np.eye(4)[:3], [0, 0, 0, 0.5])),
    ],
)
def test_matrices_that_are_no_pose(pose):
    with pytest.raises(PoseError):
        Axes.of_first_pose(pose)
    with pytest.raises(PoseError):
        Axes.of_first_pose(np.eye(4)).camera_pose(pose)
    with pytest.raises(PoseError):
        position_and_quaternion(pose)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_scales(scale):
    with pytest.raises(PoseError):
        Axes.of_first_pose(np.eye(4), scale)
