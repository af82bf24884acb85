# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Trajectories: order, thinning, path."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingbot_map_ros.geometry.sim3 import Sim3
from lingbot_map_ros.mapping.trajectory import ThinningLog, Trajectory


def at(x):
    T = np.eye(4)
    T[0, 3] = x
    return T


@given(st.integers(2, 40), st.integers(0, 2000))
@settings(max_examples=100, deadline=None)
def test_a_log_stays_within_its_capacity_and_evenly_spread(capacity, count):
    log = ThinningLog(1, capacity)
    for i in range(count):
        log.add(i, np.array([10.0 * i]))
    stamps, rows = log.rows()
    assert len(log) == len(stamps) <= capacity
    assert stamps.tolist() == list(range(0, count, log.stride))
    np.testing.assert_array_equal(rows[:, 0], 10.0 * stamps)
    if count > capacity:
        assert len(log) >= capacity // 2


def test_keyframes_and_frames_come_out_in_their_order():
    trajectory = Trajectory()
    # A deferred keyframe enters after the frames that followed it.
    for stamp, keyframe in [(1, True), (3, False), (4, False), (2, True), (5, True)]:
        trajectory.add(stamp, stamp, at(stamp), keyframe)
    stamps, poses = trajectory.poses()
    assert stamps.tolist() == [1, 2, 3, 4, 5]
    assert poses[:, 0, 3].tolist() == [1, 2, 3, 4, 5]
    stamps, poses = trajectory.poses(keyframes_only=True)
    assert stamps.tolist() == [1, 2, 5]
    np.testing.assert_array_equal(poses[:, 3], [[0, 0, 0, 1]] * 3)
    assert len(trajectory) == 5


def test_a_clock_that_was_set_back_does_not_mix_the_poses():
    trajectory = Trajectory()
    stamps = [10, 11, 12, 5, 11, 12, 13]
    for index, stamp in enumerate(stamps):
        trajectory.add(index, stamp, at(index), keyframe=index % 2 == 0)
    assert trajectory.poses()[0].tolist() == stamps
    assert trajectory.poses()[1][:, 0, 3].tolist() == list(range(len(stamps)))


def test_stamps_are_exact_and_poses_are_copies():
    trajectory = Trajectory()
    T = at(1.0)
    trajectory.add(0, 1_764_465_071_123_456_789, T, keyframe=True)
    T[:] = 0
    assert trajectory.poses()[0][0] == 1_764_465_071_123_456_789
    assert trajectory.path()[1][0, 0, 3] == 1
    trajectory.path()[1][:] = 7
    assert trajectory.path()[1][0, 0, 3] == 1


def test_the_path_holds_the_newest_keyframes_only():
    trajectory = Trajectory(path_max_length=10)
    for i in range(100):
        trajectory.add(i, i, at(i), keyframe=i % 2 == 0)
    stamps, poses = trajectory.path()
    assert stamps.tolist() == list(range(80, 100, 2))
    assert poses.shape == (10, 4, 4)
    empty_stamps, empty_poses = Trajectory().path()
    assert empty_stamps.shape == (0,)
    assert empty_poses.shape == (0, 4, 4)


def test_the_newest_of_the_path():
    trajectory = Trajectory(path_max_length=10)
    for i in range(30):
        trajectory.add(i, i, at(i), keyframe=i % 2 == 0)
    assert trajectory.num_keyframes == 15
    for newest, expected in ((0, []), (2, [26, 28]), (100, list(range(10, 30, 2)))):
        stamps, poses = trajectory.path(newest=newest)
        assert stamps.tolist() == poses[:, 0, 3].tolist() == expected


def test_the_limit_of_the_path_may_change():
    trajectory = Trajectory(path_max_length=10)
    for i in range(20):
        trajectory.add(i, i, at(i), keyframe=True)
    trajectory.limit_path(4)
    assert trajectory.path()[0].tolist() == [16, 17, 18, 19]
    trajectory.limit_path(6)
    for i in range(20, 25):
        trajectory.add(i, i, at(i), keyframe=True)
    assert trajectory.path()[0].tolist() == list(range(19, 25))


def test_days_of_frames_cost_no_more_than_hours():
    trajectory = Trajectory(path_max_length=50, max_poses=200)
    for i in range(20_000):
        trajectory.add(i, i, at(i), keyframe=i % 10 == 0)
    assert len(trajectory) <= 400
    stamps, _ = trajectory.poses()
    assert stamps[0] == 0
    assert stamps[-1] > 19_800
    assert np.diff(stamps).max() <= 160
    assert trajectory.stride == 128


def test_the_output_world_scales_positions_and_turns_poses():
    trajectory = Trajectory()
    trajectory.add(0, 0, at(2.0), keyframe=True)
    R = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    world = Sim3(3.0, R, np.array([0.0, 0, 1]))
    for poses in (trajectory.poses(world)[1], trajectory.path(world)[1]):
        np.testing.assert_allclose(poses[0, :3, 3], [0, 6, 1])
        np.testing.assert_allclose(poses[0, :3, :3], R)


def test_write_tum_of_keyframes(tmp_path):
    trajectory = Trajectory()
    for i in range(6):
        trajectory.add(i, i, at(i), keyframe=i % 3 == 0)
    assert trajectory.write_tum(tmp_path / "all.tum") == 6
    assert trajectory.write_tum(tmp_path / "keyframes.tum", keyframes_only=True) == 2
    assert np.loadtxt(tmp_path / "keyframes.tum")[:, 1] == pytest.approx([0, 3])
