# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a frame and the one before it say of each other, on renderings with exact geometry."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch

from lingbot_map_ros.geometry.poses import make_pose
from lingbot_map_ros.streaming.comparison import compare
from lingbot_map_ros.streaming.guard import MAX_LOG_SCALE, MIN_AGREEMENT
from lingbot_map_ros.streaming.observation import Frame, Observation, contrast
from lingbot_map_ros.synthetic.sequence import HELD_OUT, make_sequence

WIDTH, HEIGHT = 210, 126


@lru_cache
def rooms():
    return [make_sequence(HELD_OUT + 40 + i, 8, WIDTH, HEIGHT, "drive", 1.0) for i in range(3)]


def frame_of(image):
    tensor = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1).float() / 255
    return Frame(0, 0, tensor, contrast(image))


def observation(room, i, image=None):
    depth = room.depth[i]
    image = room.images[i] if image is None else image
    return Observation(
        frame_of(image), room.poses[i], room.intrinsics, depth, np.ones_like(depth), True
    )


def agreement(last, frame):
    compared = compare(last, frame)
    return compared and compared.agreement


@pytest.mark.parametrize("gap", [1, 4])
def test_views_of_one_scene_agree(gap):
    for room in rooms():
        shares = [
            agreement(observation(room, i), observation(room, i + gap)) for i in range(8 - gap)
        ]
        assert min(shares) > 0.6, shares


def test_other_scenes_and_noise_do_not():
    noise = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    shares = []
    for room, other in zip(rooms(), rooms()[1:] + rooms()[:1], strict=True):
        last = observation(room, 0)
        assert agreement(last, observation(room, 1, noise)) == 0.0
        images = [other.images[i] for i in range(8)] + [
            room.images[1][::-1],
            room.images[1][:, ::-1],
        ]
        shares += [agreement(last, observation(room, 1, image)) for image in images]
    assert np.mean(np.array(shares) < MIN_AGREEMENT) > 0.9 and max(shares) < 0.4, shares


@pytest.mark.parametrize("grey", [0, 20, 128, 235, 255])
def test_an_area_of_one_grey_level_agrees_with_nothing(grey):
    for room, other in zip(rooms(), rooms()[1:] + rooms()[:1], strict=True):
        for i in range(8):
            image = other.images[i].copy()
            image[: 3 * HEIGHT // 5] = grey
            assert agreement(observation(room, 0), observation(room, 1, image)) < MIN_AGREEMENT


def test_neither_exposure_nor_a_small_error_of_the_pose_matters():
    room = rooms()[0]
    last, frame = observation(room, 2), observation(room, 3)
    darker = observation(room, 3, (0.5 * room.images[3] + 10).astype(np.uint8))
    assert agreement(last, darker) > 0.6
    for degrees in (2, 4, 6):
        turned = replace(frame, pose=frame.pose @ _turn(np.radians(degrees)))
        assert agreement(last, turned) > 0.5, degrees
    # More than any error of a pose: what is compared are other parts of the room.
    turned = replace(frame, pose=frame.pose @ _turn(np.radians(11)))
    assert agreement(last, turned) < 0.4


def _turn(angle):
    c, s = np.cos(angle), np.sin(angle)
    return make_pose(np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]), np.zeros(3))


def test_either_frame_may_lack_depth_but_not_both():
    room = rooms()[1]
    last, frame = observation(room, 4), observation(room, 5)
    without = replace(frame, depth=None, confidence=None)
    assert agreement(last, without) > 0.6
    assert agreement(replace(last, depth=None, confidence=None), without) is None


def test_nothing_is_said_after_a_large_motion_or_of_a_bare_wall():
    room = rooms()[2]
    last, frame = observation(room, 4), observation(room, 5)
    assert agreement(last, replace(frame, pose=frame.pose @ _turn(np.radians(40)))) is None
    behind = replace(frame, pose=frame.pose @ make_pose(np.diag([-1.0, 1.0, -1.0]), np.zeros(3)))
    assert agreement(last, behind) is None
    bare = np.full((HEIGHT, WIDTH, 3), 128, np.uint8)
    assert agreement(observation(room, 4, bare), observation(room, 5, bare)) is None


def test_a_unit_that_jumps_is_seen_and_a_passer_by_is_not():
    room = rooms()[1]
    last, frame = observation(room, 2), observation(room, 3)
    assert abs(compare(last, frame).log_scale) < 0.02
    doubled = replace(frame, depth=2 * frame.depth)
    assert compare(last, doubled).log_scale == pytest.approx(np.log(2), abs=0.1)
    assert abs(compare(last, doubled).log_scale) > MAX_LOG_SCALE
    # Somebody stands before a third of the view, much nearer than the wall.
    image, depth = room.images[3].copy(), room.depth[3].copy()
    image[:, :70], depth[:, :70] = image[::-1, :70], 0.5
    passer = replace(observation(room, 3, image), depth=depth)
    assert abs(compare(last, passer).log_scale) < 0.1
    assert compare(replace(last, depth=None, confidence=None), frame).log_scale is None


@pytest.mark.parametrize("size", [(42, 56), (70, 112), (378, 504), (14, 14)])
def test_thumbnails_of_any_size(size):
    frame = frame_of(np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8))
    height, width = frame.thumbnail.shape
    assert (height, width) == (size[0] // frame.thumbnail_stride, size[1] // frame.thumbnail_stride)
    assert width <= 140 and frame.thumbnail.min() >= 0 and frame.thumbnail.max() <= 255
