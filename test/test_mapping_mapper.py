# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The mapper: what enters the map, when, and where."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from lingbot_map_ros.geometry.poses import invert, make_pose
from lingbot_map_ros.geometry.sim3 import Sim3
from lingbot_map_ros.mapping.mapper import Mapper, MapperOptions, confident_points
from lingbot_map_ros.streaming.results import FrameResult

SIZE = (48, 64)
K = np.array([[60.0, 0, 32], [0, 60, 24], [0, 0, 1]])
WALL = 4.0


def looking_at_wall(index, yaw=0.0, position=(0.0, 0, 0), **changes):
    """A frame in front of the plane z = WALL, whose colour tells left (red) from right (green)."""
    T = make_pose(Rotation.from_euler("y", yaw, degrees=True).as_matrix(), np.array(position))
    v, u = np.mgrid[: SIZE[0], : SIZE[1]]
    rays = np.stack(((u - K[0, 2]) / K[0, 0], (v - K[1, 2]) / K[1, 1], np.ones(SIZE)), -1)
    in_world = rays @ T[:3, :3].T
    depth = (WALL - T[2, 3]) / in_world[..., 2]
    x = T[0, 3] + depth * in_world[..., 0]
    image = np.zeros((*SIZE, 3), np.uint8)
    image[x < 0, 0] = 200
    image[x >= 0, 1] = 200
    frame = FrameResult(
        epoch=0,
        index=index,
        stamp_ns=1000 + index,
        pose_map=T,
        pose_odom=T,
        intrinsics=K,
        depth=depth.astype(np.float32),
        confidence=np.full(SIZE, 5, np.float32),
        image=image,
        keyframe=True,
        pending=False,
    )
    return replace(frame, **changes)


@pytest.fixture
def mapper():
    return Mapper(MapperOptions(voxel_size=0.1, stride=2))


VIEWS = [(0, (0, 0, 0)), (25, (-1, 0.2, 0.5)), (-30, (1.5, -0.3, 1)), (12, (0.5, 0, 2))]


def build(mapper, change=lambda T: T):
    for i, (yaw, position) in enumerate(VIEWS):
        frame = looking_at_wall(i, yaw, position)
        mapper.add(replace(frame, pose_map=change(frame.pose_map)))
    return mapper.points()


def test_views_of_a_wall_make_one_wall_with_its_colours(mapper):
    xyz, rgb = build(mapper)
    assert len(xyz) > 1000
    np.testing.assert_allclose(xyz[:, 2], WALL, atol=1e-4)
    left, right = xyz[:, 0] < -0.1, xyz[:, 0] > 0.1
    np.testing.assert_array_equal(rgb[left], np.tile([200, 0, 0], (left.sum(), 1)))
    np.testing.assert_array_equal(rgb[right], np.tile([0, 200, 0], (right.sum(), 1)))


@pytest.mark.parametrize(
    "wrong",
    [invert, lambda T: T @ np.diag([-1.0, 1, 1, 1]), lambda T: T @ np.diag([1.0, -1, -1, 1])],
    ids=["inverted", "mirrored", "OpenGL axes"],
)
def test_wrong_poses_do_not_make_that_wall(mapper, wrong):
    with pytest.raises(AssertionError):
        xyz, rgb = build(mapper, wrong)
        np.testing.assert_allclose(xyz[:, 2], WALL, atol=1e-4)
        np.testing.assert_array_equal(rgb[xyz[:, 0] < -0.1, 1], 0)


def test_a_pending_frame_waits_for_its_decision(mapper):
    frame = looking_at_wall(7, pending=True)
    mapper.add(frame)
    assert (len(mapper.trajectory), len(mapper.voxel_map)) == (0, 0)
    mapper.decide(3, kept=True)
    assert len(mapper.voxel_map) == 0
    mapper.decide(7, kept=True)
    assert mapper.trajectory.poses(keyframes_only=True)[0].tolist() == [1007]
    assert len(mapper.voxel_map) > 0
    mapper.decide(7, kept=True)
    assert len(mapper.trajectory) == 1


def test_a_dropped_or_skipped_frame_leaves_its_pose_and_no_points(mapper):
    mapper.add(looking_at_wall(0, pending=True))
    mapper.decide(0, kept=False)
    mapper.add(looking_at_wall(1, keyframe=False))
    assert mapper.trajectory.poses()[0].tolist() == [1000, 1001]
    assert len(mapper.trajectory.poses(keyframes_only=True)[0]) == 0
    assert (len(mapper.voxel_map), mapper.cameras(), mapper.segments) == (0, [], 0)


def test_a_new_epoch_starts_anew_and_a_dead_one_is_ignored(mapper):
    mapper.add(looking_at_wall(0))
    mapper.add(looking_at_wall(1, pending=True))
    mapper.add(looking_at_wall(0, epoch=2, depth=None, confidence=None))
    assert len(mapper.trajectory) == 1
    assert len(mapper.voxel_map) == 0
    mapper.decide(1, kept=True)
    mapper.add(looking_at_wall(2, epoch=1))
    assert len(mapper.trajectory) == 1
    assert len(mapper.voxel_map) == 0


def test_clear_forgets_everything(mapper):
    build(mapper)
    mapper.add(looking_at_wall(9, pending=True))
    mapper.clear()
    mapper.decide(9, kept=True)
    assert len(mapper.trajectory) == len(mapper.voxel_map) == len(mapper.cameras()) == 0
    assert mapper.segments == 0
    assert len(mapper.trajectory.path()[0]) == 0


def test_segments_are_counted(mapper):
    for index, segment in enumerate([0, 0, 1, 1, 2]):
        mapper.add(looking_at_wall(index, segment=segment))
    assert mapper.segments == 3


def test_untrusted_depth_is_left_out():
    frame = looking_at_wall(0)
    frame.depth[0, :6] = (np.nan, np.inf, 0, -1, 2, 3)
    frame.confidence[0, 4], frame.confidence[0, 5] = 1.4, np.nan
    points, colors, confidence = confident_points(frame, stride=1, confidence_min=1.5)
    assert len(points) == len(colors) == len(confidence) == SIZE[0] * SIZE[1] - 6
    assert points.dtype == np.float32
    np.testing.assert_array_equal(colors, frame.image.reshape(-1, 3)[6:])
    trusting, _, ones = confident_points(replace(frame, confidence=None), 1, 1.5)
    assert len(trusting) == SIZE[0] * SIZE[1] - 4
    assert set(ones) == {1}
    bare = replace(frame, depth=None, confidence=None)
    assert [len(part) for part in confident_points(bare, 1, 1.5)] == [0, 0, 0]


def test_stride_keeps_colours_with_their_points():
    frame = looking_at_wall(0)
    points, colors, _ = confident_points(frame, stride=3, confidence_min=0)
    assert len(points) == 16 * 22
    np.testing.assert_array_equal(colors[:, 0] > 0, points[:, 0] < 0)


def test_the_output_world_moves_map_cameras_and_trajectory_alike(mapper):
    build(mapper)
    R = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])  # optical axes to x forward, z up
    world = Sim3(2.5, R, np.array([1.0, 2, 3]))
    xyz, _ = mapper.points()
    moved, _ = mapper.points(world)
    np.testing.assert_allclose(moved, world.apply(xyz), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(moved[:, 0], 2.5 * WALL + 1, atol=1e-3)
    cameras, poses = mapper.cameras(world), mapper.trajectory.poses(world)[1]
    np.testing.assert_allclose([camera.T for camera in cameras], poses, atol=1e-12)
    assert cameras[0].size == SIZE
    np.testing.assert_array_equal(cameras[0].K, K)
    assert [camera.stamp_ns for camera in cameras] == [1000, 1001, 1002, 1003]


def test_files_of_a_map(mapper, tmp_path):
    xyz, _ = build(mapper)
    assert mapper.write_map(tmp_path / "map.ply") == len(xyz)
    assert mapper.trajectory.write_tum(tmp_path / "trajectory.tum") == len(VIEWS)


@pytest.mark.parametrize(("confidence", "warned"), [(1.2, True), (3.0, False), (None, False)])
def test_a_map_that_stays_empty_says_why(caplog, confidence, warned):
    mapper = Mapper(MapperOptions())
    for index in range(15):
        given = None if confidence is None else np.full(SIZE, confidence, np.float32)
        mapper.add(looking_at_wall(index, confidence=given))
    said = [r.message for r in caplog.records if "depth_confidence_min 1.5" in r.message]
    assert len(said) == warned


def test_the_limit_that_is_advised_keeps_the_better_part_of_the_depth(caplog):
    """As on photographs: the confidence stays near 1, and its order is all that it tells."""
    confidence = (1 + 0.1 * np.random.default_rng(0).random((10, *SIZE)) ** 2).astype(np.float32)
    frames = [looking_at_wall(i, confidence=given) for i, given in enumerate(confidence)]
    mapper = Mapper(MapperOptions())
    for frame in frames:
        mapper.add(frame)
    assert len(mapper.voxel_map) == 0
    (message,) = [r.message for r in caplog.records]
    advised = float(re.search(r"depth_confidence_min ([\d.]+) would keep", message)[1])
    assert re.search(r"would keep 7[0-2]% of it", message)
    assert advised == pytest.approx(np.quantile(confidence, 0.3), abs=1e-3)
    kept = [len(confident_points(frame, 1, advised)[0]) for frame in frames]
    assert 0.7 <= sum(kept) / confidence.size < 0.72
