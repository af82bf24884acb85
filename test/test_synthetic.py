# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The synthetic world: exact geometry, clear paths, determinism, separate seeds, good pictures."""

import math

import numpy as np
import pytest
import torch

from lingbot_map_ros.errors import InputError
from lingbot_map_ros.synthetic import world as w
from lingbot_map_ros.synthetic.camera import Camera, lens, pinhole
from lingbot_map_ros.synthetic.mipmap import LEVELS, TexturePyramid
from lingbot_map_ros.synthetic.raycast import Scene, cast
from lingbot_map_ros.synthetic.sequence import (
    HELD_OUT,
    KINDS,
    is_held_out,
    make_sequence,
    plan_shot,
)
from lingbot_map_ros.synthetic.textures import MOTIFS, SIZE, procedural_bank

WIDTH, HEIGHT = 160, 120


@pytest.fixture(scope="module")
def sequence():
    return make_sequence(HELD_OUT + 7, 8, WIDTH, HEIGHT, "drive", difficulty=0.3)


def rays_of(camera):
    return np.concatenate([camera.rays(), np.ones((camera.height, camera.width, 1))], -1)


def bilinear(image, x, y):
    x0, y0 = np.floor(x).astype(int), np.floor(y).astype(int)
    fx, fy = (x - x0)[..., None], (y - y0)[..., None]
    image = image.reshape(*image.shape[:2], -1).astype(float)
    top = image[y0, x0] * (1 - fx) + image[y0, x0 + 1] * fx
    return top * (1 - fy) + (image[y0 + 1, x0] * (1 - fx) + image[y0 + 1, x0 + 1] * fx) * fy


def reproject(sequence, i, j):
    """Depth and colour of frame j at the points of frame i, and what they should be there."""
    points = rays_of(sequence.camera) * sequence.depth[i][..., None]
    relative = np.linalg.inv(sequence.poses[j]) @ sequence.poses[i]
    points = points @ relative[:3, :3].T + relative[:3, 3]
    k = sequence.intrinsics
    x = k[0, 0] * points[..., 0] / points[..., 2] + k[0, 2]
    y = k[1, 1] * points[..., 1] / points[..., 2] + k[1, 2]
    height, width = sequence.depth.shape[1:]
    inside = (points[..., 2] > 0) & (x >= 0) & (x < width - 1) & (y >= 0) & (y < height - 1)
    x, y = x[inside], y[inside]
    depth = bilinear(sequence.depth[j], x, y)[:, 0]
    colour = bilinear(sequence.images[j], x, y)
    return depth, points[..., 2][inside], colour, sequence.images[i][inside].astype(float)


def test_shapes_and_types(sequence):
    assert sequence.images.shape == (8, HEIGHT, WIDTH, 3) and sequence.images.dtype == np.uint8
    assert sequence.depth.shape == (8, HEIGHT, WIDTH) and sequence.depth.dtype == np.float32
    assert sequence.poses.shape == (8, 4, 4) and sequence.poses.dtype == np.float64
    np.testing.assert_array_equal(np.diff(sequence.stamps_ns), 100_000_000)
    rotation = sequence.poses[:, :3, :3]
    np.testing.assert_allclose(
        rotation @ rotation.swapaxes(1, 2), np.broadcast_to(np.eye(3), (8, 3, 3)), atol=1e-12
    )
    np.testing.assert_allclose(np.linalg.det(rotation), 1.0)
    assert (rotation[:, 2, 1] < -0.9).all(), "the camera stands upright: its y axis points down"


def test_intrinsics_centre_and_field_of_view(sequence):
    assert sequence.intrinsics[0, 2] == WIDTH / 2 and sequence.intrinsics[1, 2] == HEIGHT / 2
    shots = [plan_shot(np.random.default_rng(s), 2, "drive", 0.5, 10.0) for s in range(40)]
    fov = np.degrees([shot.fov for shot in shots])
    assert 50 <= fov.min() < 60 and 80 < fov.max() <= 90
    camera = pinhole(200, 100, shots[0].fov)
    assert 2 * math.atan(100 / camera.intrinsics[0, 0]) == pytest.approx(shots[0].fov)
    assert camera.intrinsics[0, 0] == camera.intrinsics[1, 1]


@pytest.mark.parametrize(("i", "j"), [(0, 2), (2, 0), (1, 6)])
def test_frames_agree_by_depth_and_pose(sequence, i, j):
    seen, expected, colour, original = reproject(sequence, i, j)
    error = np.abs(seen / expected - 1)
    assert len(error) > 0.3 * WIDTH * HEIGHT
    assert np.median(error) < 1e-4
    same = error < 0.01
    assert same.mean() > 0.9, "the rest are occlusions and edges"
    gain = np.median(colour[same]) / np.median(original[same])
    difference = np.abs(colour[same] / gain - original[same])
    assert np.median(difference) < 6
    # The same pixels compared without the pose disagree: the test would notice a wrong one.
    shuffled = np.abs(np.roll(colour[same], 41, axis=0) / gain - original[same])
    assert np.median(shuffled) > 2 * np.median(difference)


def test_depth_is_exact():
    """Points unprojected from the depth image lie on surfaces, by an independent distance."""
    shot = plan_shot(np.random.default_rng(3), 4, "mixed", 1.0, 10.0)
    camera = pinhole(96, 72, shot.fov)
    pose = shot.path.poses(np.array([0.2]))
    rays = torch.from_numpy(camera.rays()).float().reshape(1, -1, 2)
    scene = Scene.stack([shot.world], torch.device("cpu"))
    depth, index = cast(scene, torch.from_numpy(pose).float()[None], rays)
    points = rays_of(camera).reshape(-1, 3) * depth[0, 0].double().numpy()[:, None]
    points = points @ pose[0, :3, :3].T + pose[0, :3, 3]
    assert np.abs(shot.world.clearance(points)).max() < 1e-4
    halfway = (points + pose[0, :3, 3]) / 2
    assert shot.world.clearance(halfway).min() > 0, "nothing stands before the nearest hit"
    assert len(index.unique()) > 4


@pytest.mark.parametrize("kind", KINDS)
def test_cameras_keep_clear_and_move_like_robots(kind):
    for seed in range(12):
        frames = 24 if seed % 2 else 120
        shot = plan_shot(np.random.default_rng(seed), frames, kind, seed % 3 / 2, 10.0)
        poses = shot.path.poses(np.arange(frames) / 10)
        assert shot.world.clearance(shot.path.position).min() > 0.2
        speed = np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1) * 10
        assert speed.max() < 1.5
        yaw = shot.path.angles[::8, 0]
        assert np.abs(yaw[10:] - yaw[:-10]).max() < math.radians(36)


def test_difficulty_widens_the_motion():
    def turn(difficulty):
        paths = [
            plan_shot(np.random.default_rng(s), 60, "drive", difficulty, 10.0).path
            for s in range(10)
        ]
        return np.mean([np.abs(np.diff(p.angles[:, 0])).sum() for p in paths])

    assert turn(1.0) > 2 * turn(0.0)


def test_loops_return_and_rotations_stay():
    loop = plan_shot(np.random.default_rng(1), 120, "loop", 1.0, 10.0)
    first, last = loop.path.poses(np.array([0.0, 11.9]))
    assert np.linalg.norm(first[:3, 3] - last[:3, 3]) < 0.05
    assert first[:3, 2] @ last[:3, 2] > 0.999
    path = plan_shot(np.random.default_rng(1), 120, "rotate", 1.0, 10.0).path
    assert np.abs(np.diff(path.angles[:, 0])).sum() > math.pi
    drive = plan_shot(np.random.default_rng(1), 120, "drive", 1.0, 10.0).path
    travelled = [np.linalg.norm(np.diff(p.position, axis=0), axis=1).sum() for p in (path, drive)]
    assert travelled[0] < travelled[1] / 2


def test_same_seed_same_sequence(sequence):
    again = make_sequence(HELD_OUT + 7, 8, WIDTH, HEIGHT, "drive", difficulty=0.3)
    np.testing.assert_array_equal(again.images, sequence.images)
    np.testing.assert_array_equal(again.depth, sequence.depth)
    np.testing.assert_array_equal(again.poses, sequence.poses)


def test_held_out_worlds_share_nothing_with_training():
    assert not is_held_out(HELD_OUT - 1) and is_held_out(HELD_OUT)
    train = make_sequence(HELD_OUT - 1, 1, 32, 24)
    held_out = make_sequence(HELD_OUT, 1, 32, 24)
    assert not np.array_equal(train.depth, held_out.depth)
    banks = [procedural_bank(seed, len(MOTIFS)) for seed in (0, 1)]
    for a in banks[0]:
        assert all(np.abs(a.astype(int) - b).mean() > 5 for b in banks[1])


def test_every_surface_carries_texture(sequence):
    """Nearly every 16x16 block of every image has contrast that a tracker could hold."""
    blocks = sequence.images.mean(-1).reshape(8, HEIGHT // 15, 15, WIDTH // 16, 16)
    contrast = blocks.std((2, 4))
    assert (contrast > 3).mean() > 0.9
    assert 60 < sequence.images.mean() < 160


def test_textures_wrap_and_average_down():
    bank = torch.tensor(procedural_bank(0, 4))
    pyramid = TexturePyramid(bank, torch.device("cpu"))
    index = torch.full((5,), 2, dtype=torch.int32)
    u, v = torch.rand(5), torch.rand(5)
    for level in (0.0, 3.5):
        at = torch.full((5,), level)
        here, there = (pyramid.colour(index, u + d, v - 2 * d, at) for d in (0, 1))
        torch.testing.assert_close(torch.stack(here), torch.stack(there), atol=0.2, rtol=0)
    texel = (torch.tensor([10.5]) / SIZE, torch.tensor([20.5]) / SIZE)
    exact = torch.stack(pyramid.colour(index[:1], *texel, torch.zeros(1)))[:, 0]
    torch.testing.assert_close(exact, bank[2, 20, 10].float())
    coarse = torch.stack(pyramid.colour(index, u, v, torch.full((5,), float(LEVELS)))).mean(1)
    assert (coarse - bank[2].float().mean((0, 1))).abs().max() < 25
    with pytest.raises(InputError, match="256"):
        TexturePyramid(bank[:, :128], torch.device("cpu"))


@pytest.mark.parametrize("model", ["plumb_bob", "equidistant"])
def test_distorted_lenses_invert_exactly(model):
    cv2 = pytest.importorskip("cv2")
    camera = lens(model, 320, 240)
    rays = rays_of(camera).reshape(-1, 1, 3)
    zero, d = np.zeros(3), np.array(camera.distortion)
    project = cv2.projectPoints if model == "plumb_bob" else cv2.fisheye.projectPoints
    pixels = project(rays, zero, zero, camera.intrinsics, d)[0].reshape(240, 320, 2)
    grid = np.stack(np.meshgrid(np.arange(320), np.arange(240)), -1)
    np.testing.assert_allclose(pixels, grid, atol=1e-6)


def test_distorted_picture_is_the_warped_pinhole_picture():
    flat = make_sequence(5, 1, 320, 240, difficulty=0.0, camera=lens("pinhole", 320, 240))
    bent = make_sequence(5, 1, 320, 240, difficulty=0.0, camera=lens("plumb_bob", 320, 240))
    rays = bent.camera.rays()
    k = flat.intrinsics
    x, y = (rays[..., i] * k[i, i] + k[i, 2] for i in (0, 1))
    inside = (x >= 0) & (x < 319) & (y >= 0) & (y < 239)
    expected = bilinear(flat.depth[0], x[inside], y[inside])[:, 0]
    error = np.abs(bent.depth[0][inside] / expected - 1)
    assert np.median(error) < 1e-4 and inside.mean() > 0.4


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="kind"):
        make_sequence(0, 2, 32, 24, "fly")
    with pytest.raises(InputError, match="difficulty"):
        make_sequence(0, 2, 32, 24, difficulty=2.0)
    with pytest.raises(InputError, match="frames"):
        make_sequence(0, 0, 32, 24)
    with pytest.raises(InputError, match="seed"):
        make_sequence(-1, 2, 32, 24)
    with pytest.raises(InputError, match="size"):
        make_sequence(0, 2, 4, 4)
    with pytest.raises(InputError, match="coefficients"):
        Camera(8, 8, np.eye(3), "plumb_bob", (0.1,))
    with pytest.raises(InputError, match="inverted"):
        Camera(64, 64, pinhole(64, 64, 1.5).intrinsics, "plumb_bob", (-0.9, 0, 0, 0, 0)).rays()


def test_unused_primitives_are_out_of_sight():
    world = w.World()
    assert (world.centre[:, 2] < -10).all()
    assert world.clearance(np.zeros((1, 3))).shape == (1,)
