# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Clouds: no camera is in an object, and looks say nothing about distance."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from training.clouds import plan_cloud
from training.rooms import plan_track

from lingbot_map_ros.synthetic import world as w
from lingbot_map_ros.synthetic.sequence import TEXTURES

SEEDS = range(15)
SIZE = (42, 70)
CLEARANCE = 0.15
FREQUENCIES = slice(w.BASE_FREQUENCY, w.MACRO_FREQUENCY + 1)
VANISHED = 1.1e-3
"""Half size of an object that the path leads through, metres."""


def cloud(seed, frames=128, difficulty=1.0, fps=3.0, photographs=0):
    return plan_cloud(np.random.default_rng(seed), frames, difficulty, fps, photographs)


def reach(world):
    """Half diagonals of the objects."""
    return np.linalg.norm(world.half[:-1], axis=-1)


def without_the_vanished(world):
    world = copy.deepcopy(world)
    world.centre[:-1][reach(world) < VANISHED] = world.centre[-1] + 1e4
    return world


def equal(a, b):
    """Whether two shots are the same in every number."""
    worlds = all(
        np.array_equal(x, y) for x, y in zip(vars(a.world).values(), vars(b.world).values())
    )
    return worlds and np.array_equal(a.path.position, b.path.position) and a.fov == b.fov


@pytest.mark.parametrize(("frames", "fps"), [(128, 3.0), (120, 3.0), (128, 10.0)])
def test_no_camera_is_in_an_object_or_beyond_the_background(frames, fps):
    """Not between images either: the shutter is open for a while."""
    for seed in SEEDS:
        shot = cloud(seed, frames, fps=fps)
        track = shot.path.position
        assert without_the_vanished(shot.world).clearance(track).min() > CLEARANCE - 1e-6
        assert shot.world.clearance(track).min() > 0
        shell = shot.world.half[-1] - np.abs(
            (track - shot.world.centre[-1]) @ shot.world.rotation[-1]
        )
        assert shell.min() > 1 - 1e-6
        assert (reach(shot.world) < VANISHED).mean() < 0.2


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 40), st.floats(0, 1), st.floats(1, 30), st.booleans()
)
def test_any_cloud_is_sound(seed, frames, difficulty, fps, photographs):
    shot = cloud(seed, frames, difficulty, fps, 5 * photographs)
    world = shot.world
    assert without_the_vanished(world).clearance(shot.path.position).min() > CLEARANCE - 1e-6
    for array in vars(world).values():
        assert np.isfinite(array).all()
    assert world.half.min() > 0 and world.surfaces[..., FREQUENCIES].min() > 0
    turned = world.rotation @ np.swapaxes(world.rotation, 1, 2)
    assert np.allclose(turned, np.eye(3)) and np.allclose(np.linalg.det(world.rotation), 1)
    round_ones = world.half[w.BOXES : -1]
    assert np.array_equal(round_ones[:, 0], round_ones[:, 1]), "cylinders and spheres are round"
    assert np.ptp(world.half[w.BOXES + w.CYLINDERS : -1], axis=1).max() == 0
    last = world.surfaces[..., w.BASE].max()
    assert last < TEXTURES + 5 * photographs and (last >= TEXTURES) == photographs


def test_looks_say_nothing_about_distance():
    """Seen from one place, so that each object has one distance and none is cut for clearance."""
    seen, size, frequency, turns = [], [], [], []
    for seed in range(60):
        shot = cloud(seed, frames=1, difficulty=0.0, fps=300.0)
        eye = shot.path.poses(0.0)
        seen.append((shot.world.centre[:-1] - eye[:3, 3]) @ eye[:3, :3])
        size.append(reach(shot.world))
        frequency.append(shot.world.surfaces[:-1, :, FREQUENCIES])
        turns.append(shot.world.rotation[:-1, 2, 2])
    seen, size, frequency, turns = map(np.concatenate, (seen, size, frequency, turns))
    distance = np.linalg.norm(seen, axis=-1)
    # By chance correlations deviate by 0.02 over objects and by 0.01 over their faces.
    assert distance.min() > 0.45 and distance.max() > 8
    assert abs(spearmanr(size / distance, distance).statistic) < 0.06
    assert spearmanr(size, distance).statistic > 0.6
    faces = np.repeat(distance, w.FACES)
    for layer in frequency.reshape(-1, 3).T:
        assert abs(spearmanr(layer * faces, faces).statistic) < 0.04
        assert spearmanr(layer, faces).statistic < -0.5
    elevation = np.degrees(np.arcsin(-seen[:, 1] / distance))
    assert abs(spearmanr(elevation, distance).statistic) < 0.06, "there is no floor"
    assert abs(elevation.mean()) < 1.5, "around where the camera looks"
    azimuth = np.degrees(np.arctan2(seen[:, 0], seen[:, 2]))
    assert abs(azimuth.mean()) < 3 and 45 < np.abs(azimuth).max() < 70
    assert abs(turns.mean()) < 0.05 and abs((turns**2).mean() - 1 / 3) < 0.03, "at any tilt"


def test_every_object_is_in_front_of_some_camera():
    for seed in SEEDS:
        shot = cloud(seed)
        eyes = shot.path.poses(shot.path.times)
        large = shot.world.centre[:-1][reach(shot.world) > VANISHED]
        seen = np.einsum("fpi,fij->fpj", large - eyes[:, None, :3, 3], eyes[:, :3, :3])
        near = np.linalg.norm(seen, axis=-1) < 9.01
        angle = np.degrees(np.arctan2(np.abs(seen[..., 0]), seen[..., 2]))
        assert np.where(near, angle, 180).min(0).max() < 55


def test_a_cloud_is_passed_faster_than_a_room_and_faster_where_it_is_difficult():
    def travelled(difficulty, clouds):
        paths = [plan_track((0, 0, k), 128, SIZE, difficulty, 0, clouds).shot.path for k in SEEDS]
        return [np.linalg.norm(np.diff(path.position, axis=0), axis=1).sum() for path in paths]

    hard = np.array(travelled(1.0, clouds=1.0))
    assert np.median(hard) > 1.5 * np.median(travelled(0.0, clouds=1.0))
    assert np.median(hard) > 2 * np.median(travelled(1.0, clouds=0.0))
    assert hard.min() > 8, "none turns on the spot"


def test_a_share_of_the_tracks_leads_through_clouds():
    """Clouds are at any tilt, rooms stand upright."""

    def is_cloud(share, seed):
        turn = plan_track((0, 0, seed), 24, SIZE, 1.0, 0, share).shot.world.rotation[-1]
        return not np.allclose(turn[2], [0, 0, 1])

    assert all(is_cloud(1.0, seed) for seed in SEEDS)
    assert not any(is_cloud(0.0, seed) for seed in SEEDS)
    assert 0.55 < np.mean([is_cloud(0.7, seed) for seed in range(60)]) < 0.85


def test_the_same_seed_gives_the_same_track():
    room, track, again = (
        plan_track((0, 0, 5), 24, SIZE, 1.0, 0, clouds) for clouds in (0.0, 1.0, 1.0)
    )
    assert equal(track.shot, again.shot) and track.focal == again.focal
    assert not equal(track.shot, room.shot) and track.fps == room.fps
    assert equal(cloud(3), cloud(3)) and not equal(cloud(3), cloud(4))
