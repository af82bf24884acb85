# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What reaches the host of a frame, and what the guard makes of it: by their plain definitions."""

import numpy as np
import pytest
import torch

from lingbot_map_ros.geometry.poses import invert, make_pose, quaternion_to_matrix, rotation_angle
from lingbot_map_ros.models.prediction import Prediction
from lingbot_map_ros.streaming.frame import Frame, contrast
from lingbot_map_ros.streaming.guard import View, _steps
from lingbot_map_ros.streaming.observation import observe

FRAMES, HEIGHT, WIDTH = 3, 28, 42


def frames():
    generator = torch.Generator().manual_seed(2)
    images = torch.rand((FRAMES, 3, HEIGHT, WIDTH), generator=generator)
    return [Frame(i, i, image, 50.0) for i, image in enumerate(images)]


def prediction():
    poses = torch.tensor([0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 1.0, 0.9, 1.1]).repeat(FRAMES, 1)
    depth = torch.linspace(0.5, 5, HEIGHT * WIDTH).view(1, HEIGHT, WIDTH).repeat(FRAMES, 1, 1)
    return Prediction(poses, depth, 1 + depth, (poses,))


@pytest.mark.parametrize("name", ["depth", "confidence"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_value_that_is_not_finite_makes_its_frame_invalid(name, value):
    good, bad = prediction(), prediction()
    getattr(bad, name)[1, 7, 9] = value
    assert [seen.valid for seen in observe(frames(), good)] == [True] * FRAMES
    assert [seen.valid for seen in observe(frames(), bad)] == [True, False, True]


def test_infinities_of_both_signs_do_not_cancel():
    bad = prediction()
    bad.depth[2, 0, 0], bad.confidence[2, 0, 0] = float("inf"), -float("inf")
    assert [seen.valid for seen in observe(frames(), bad)] == [True, True, False]


def test_a_frame_without_depth_is_judged_by_its_pose():
    said = prediction()
    said.pose_enc[0, 2] = float("nan")
    seen = observe(frames(), Prediction(said.pose_enc, None, None, ()))
    assert [one.valid for one in seen] == [False, True, True]
    assert all(one.depth is None and one.confidence is None for one in seen)


def test_every_frame_gets_its_own_part():
    said = prediction()
    said.pose_enc[:, 0] = torch.arange(FRAMES)
    said.pose_enc[:, 7] += 0.1 * torch.arange(FRAMES)
    said.depth[:] += torch.arange(FRAMES)[:, None, None]
    for i, (frame, seen) in enumerate(zip(frames(), observe(frames(), said), strict=True)):
        assert seen.pose[0, 3] == i
        assert seen.intrinsics[1, 1] == pytest.approx(HEIGHT / 2 / np.tan((0.9 + 0.1 * i) / 2))
        np.testing.assert_array_equal(seen.depth, said.depth[i].numpy())
        image = (frame.tensor.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
        np.testing.assert_array_equal(seen.frame.pixels, image)


@pytest.mark.parametrize("shape", [(480, 640), (37, 53), (8, 8), (14, 700)])
def test_contrast_is_the_deviation_of_the_mean_over_the_channels(shape):
    image = np.random.default_rng(1).integers(0, 256, (*shape, 3), np.uint8)
    image.setflags(write=False)
    rows, columns = (np.arange(-(-n // 8)) * n // -(-n // 8) for n in shape)
    expected = image[rows][:, columns].astype(np.float64).mean(-1).std()
    assert contrast(image) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert contrast(image[..., ::-1]) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_an_image_of_one_grey_has_no_contrast():
    greys = [contrast(np.full((48, 64, 3), grey, np.uint8)) for grey in range(256)]
    assert max(greys) < 1e-4


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 0.5, 2.0, 3.1, np.pi])
def test_steps_are_those_of_the_relative_pose(angle):
    generator = np.random.default_rng(3)
    axis = generator.normal(size=3)
    axis /= np.linalg.norm(axis)
    turn = quaternion_to_matrix(np.append(axis * np.sin(angle / 2), np.cos(angle / 2)))
    start = make_pose(quaternion_to_matrix(generator.normal(size=4)), generator.normal(size=3))
    end = start @ make_pose(turn, np.array([0.3, -0.4, 1.2]))
    views = [View(pose, 0, None, None, 50.0) for pose in (start, end)]
    translation, rotation = _steps(*views)
    relative = invert(start) @ end
    assert translation == pytest.approx(1.3)
    # Close to a half turn the chord hardly changes.
    assert rotation == pytest.approx(float(rotation_angle(relative)), abs=1e-7, rel=1e-7)


def test_typical_values_are_medians_of_every_frame():
    said = prediction()
    said.depth[:] *= torch.arange(1, FRAMES + 1)[:, None, None]
    for i, seen in enumerate(observe(frames(), said)):
        assert seen.typical_depth == pytest.approx(float(said.depth[i].median()))
        assert seen.typical_confidence == pytest.approx(float(said.confidence[i].median()))
        np.testing.assert_allclose(seen.sketch.pose, seen.pose)
        np.testing.assert_allclose(seen.sketch.intrinsics, seen.intrinsics)
        assert seen.comparison is None


def test_a_sketch_keeps_none_of_the_networks_maps():
    said = prediction()
    kept = observe(frames(), said)[0].sketch.depth
    before = kept.clone()
    said.depth.fill_(7.0)
    assert torch.equal(kept, before)


def test_a_frame_is_compared_with_the_one_before():
    """Blocks of noise that lie where they were, and others that do not."""
    generator = torch.Generator().manual_seed(4)
    image, other = torch.rand((2, 3, 126, 210), generator=generator)
    pose = torch.tensor([[0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 1.0, 0.9, 1.1]])
    said = Prediction(pose, torch.full((1, 126, 210), 2.0), torch.full((1, 126, 210), 2.0), ())
    first = observe([Frame(0, 0, image, 50.0)], said)[0]
    for seen, expected in ((image, 1.0), (other, 0.0)):
        compared = observe([Frame(1, 1, seen, 50.0)], said, first)[0].comparison
        assert compared.agreement == pytest.approx(expected, abs=0.1)
    assert compared.log_scale is None
