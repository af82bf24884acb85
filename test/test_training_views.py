# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What training makes of rendered clips: exact depth, poses and intrinsics under every change."""

import pytest
import torch
from training.augment import augment
from training.jpeg import compress
from training.losses import make_targets
from training.rooms import TRAINING, VALIDATION, plan_track
from training.store import Clips, TrackStore, mirror
from training.virtual_camera import NARROWEST, WIDEST, Views, draw_views, look

from lingbot_map_ros.geometry.poses import rotation_angle
from lingbot_map_ros.synthetic.camera import pinhole
from lingbot_map_ros.synthetic.sequence import HELD_OUT, make_sequence

SIZE = (126, 210)


def clips_of(s):
    return Clips(
        torch.from_numpy(s.images).permute(0, 3, 1, 2).float()[None] / 255,
        torch.from_numpy(s.depth)[None],
        torch.from_numpy(s.poses).float()[None],
        torch.tensor([[s.intrinsics[0, 0], s.intrinsics[1, 1]]], dtype=torch.float32),
    )


@pytest.fixture(scope="module")
def wide():
    """A clip finer and wider than the network's images, as openarena_clips.py renders them."""
    camera = pinhole(315, 189, 1.85)
    return clips_of(
        make_sequence(HELD_OUT + 902, 6, 315, 189, "drive", 0.5, fps=3.0, camera=camera)
    )


def reprojection_error(clips, first=0, last=5):
    """Median relative difference of the depth of one frame seen from another and its own."""
    height, width = clips.depth.shape[-2:]
    focal = clips.focal[0]
    v, u = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    middle = torch.tensor([width / 2, height / 2])
    depth = clips.depth[0, first]
    rays = (torch.stack((u, v), -1) - middle) / focal
    points = torch.cat(
        (rays * depth[..., None], depth[..., None], torch.ones_like(rays[..., :1])), -1
    )
    seen = points @ (torch.linalg.inv(clips.poses[0, last]) @ clips.poses[0, first]).T
    x, y = (seen[..., :2] / seen[..., 2:3] * focal + middle).round().long().unbind(-1)
    inside = (depth > 0) & (x >= 1) & (x < width) & (y >= 0) & (y < height) & (seen[..., 2] > 0)
    there = clips.depth[0, last][y[inside], x[inside]]
    known = there > 0
    assert known.sum() > 0.2 * depth.numel()
    return float(((there - seen[..., 2][inside]).abs() / there)[known].median())


def test_mirrored_clips_are_consistent():
    """In a mirrored world points of one frame fall on the surfaces of another as before."""
    clips = clips_of(make_sequence(HELD_OUT + 901, 6, 210, 126, "loop", 0.5))
    mirrored = mirror(clips, torch.tensor([True]))
    assert torch.equal(mirror(clips, torch.tensor([False])).images, clips.images)
    assert torch.equal(mirrored.images[..., 1:], clips.images.flip(-1)[..., :-1])
    assert torch.linalg.det(mirrored.poses[..., :3, :3]).allclose(torch.ones(6))
    assert reprojection_error(mirrored) < 1.2 * reprojection_error(clips) < 0.02
    turned = mirrored._replace(poses=clips.poses)
    assert reprojection_error(turned) > 3 * reprojection_error(clips)


def test_views_are_exact_in_pose_depth_and_focal_length(wide):
    generator = torch.Generator().manual_seed(3)
    before = reprojection_error(wide)
    for _ in range(6):
        views = draw_views(wide, SIZE, generator)
        clips = look(wide, views, SIZE)
        assert clips.images.shape == (1, 6, 3, *SIZE) and clips.depth.shape == (1, 6, *SIZE)
        assert (clips.depth > 0).float().mean() > 0.98
        after = reprojection_error(clips)
        assert after < max(1.5 * before, 3e-3)
        assert torch.linalg.det(clips.poses[..., :3, :3]).allclose(torch.ones(6))
    # The measure sees a focal length that is wrong by a tenth, and a turn left out.
    assert reprojection_error(clips._replace(focal=1.1 * clips.focal)) > 3 * after
    turned = clips.poses.clone()
    turned[:, -1, :3, :3] = turned[:, -1, :3, :3] @ views.rotation[:, 0].mT
    assert reprojection_error(clips._replace(poses=turned)) > 3 * after


def test_a_view_equals_a_rendering_by_that_camera():
    """Depth within half a percent where surfaces are smooth, colours alike."""
    wide = pinhole(315, 189, 1.6)
    narrow = pinhole(210, 126, 1.1)
    source, truth = (
        clips_of(make_sequence(HELD_OUT + 903, 2, c.width, c.height, "drive", 0.0, camera=c))
        for c in (wide, narrow)
    )
    view = look(source, Views(truth.focal, torch.eye(3).expand(1, 2, 3, 3)), SIZE)
    error = ((view.depth - truth.depth).abs() / truth.depth)[view.depth > 0]
    assert error.median() < 1e-4 and error.quantile(0.97) < 5e-3
    # Each camera exposes for what it sees.
    images = view.images * truth.images.mean() / view.images.mean()
    assert (images - truth.images).abs().mean() < 0.02


def test_the_view_of_the_same_camera_is_the_clip_itself(wide):
    identity = Views(wide.focal, torch.eye(3).expand(1, 6, 3, 3))
    same = look(wide, identity, (189, 315))
    assert torch.allclose(same.images, wide.images, atol=1e-3)
    assert torch.allclose(same.depth, wide.depth, rtol=1e-3)
    assert torch.equal(same.poses, wide.poses)


def test_unknown_depth_stays_unknown(wide):
    depth = wide.depth.clone()
    depth[..., :100, :] = 0
    holes = wide._replace(depth=depth)
    views = draw_views(wide, SIZE, torch.Generator().manual_seed(0))
    known = look(holes, views, SIZE).depth > 0
    assert 0.05 < known.float().mean() < 0.95
    full = look(wide, views, SIZE).depth
    assert torch.equal(look(holes, views, SIZE).depth[known], full[known])


def test_views_cover_the_fields_of_view_and_turn(wide):
    """From sources of 65 to 110 degrees, views of 45 to 100, squeezed and turned."""
    generator = torch.Generator().manual_seed(0)
    slopes = torch.linspace(0.64, 1.42, 200)
    many = Clips(
        wide.images.expand(200, -1, -1, -1, -1),
        wide.depth.expand(200, -1, -1, -1),
        wide.poses.expand(200, -1, -1, -1),
        (315 / 2 / slopes)[:, None].expand(200, 2),
    )
    views = draw_views(many, SIZE, generator)
    fov = 2 * torch.atan(torch.tensor([210, 126]) / 2 / views.focal)
    assert fov[:, 0].min() >= NARROWEST - 1e-4 and fov[:, 0].max() <= WIDEST + 1e-4
    assert fov[:, 0].quantile(0.05) < 0.95 and fov[:, 0].quantile(0.95) > 1.5
    aspect = views.focal[:, 1] / views.focal[:, 0]
    assert 0.1 < ((aspect - 1).abs() > 0.01).float().mean() < 0.3
    angles = torch.rad2deg(rotation_angle(views.rotation))
    assert angles.median() > 2 and angles.max() < 45
    between = rotation_angle(views.rotation[:, 0].mT @ views.rotation[:, -1])
    assert torch.rad2deg(between).median() > 1


def track(length):
    """A track whose frames can be told apart: frame i is at x = i and i deep."""
    index = torch.arange(length)
    poses = torch.eye(4).repeat(length, 1, 1)
    poses[:, 0, 3] = index
    images = index.to(torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2)
    depth = index.float()[:, None, None].expand(-1, 2, 2)
    return images, depth, poses, torch.tensor([5.0, 6.0])


@pytest.mark.parametrize(("frames", "stride"), [(16, 8), (40, 3), (120, 1), (1, 3), (128, 8)])
def test_sampled_frames_keep_their_own_pose_and_depth(frames, stride):
    store = TrackStore(2, 128, (2, 2), torch.device("cpu"))
    store.add(*track(128))
    clips = store.sample(400, frames, stride, torch.Generator().manual_seed(1))
    at = clips.poses[..., 0, 3]
    assert torch.equal(clips.depth[..., 0, 0], at)
    assert torch.equal((clips.images[..., 0, 0, 0] * 255).round(), at)
    assert at.min() >= 0 and at.max() <= 127
    if frames == 1:
        return
    steps = at.diff(dim=1)
    possible = min(stride, 127 // (frames - 1))
    assert steps.abs().min() >= 1 and steps.abs().max() == possible
    forwards = (steps > 0).all(1)
    assert ((steps < 0).all(1) | forwards).all() and 0.4 < forwards.float().mean() < 0.6
    even = (steps == steps[:, :1]).all(1).float().mean()
    assert even == 1 if possible == 1 else 0.4 < even < 0.8


def test_far_apart_clips_turn_like_photographs_of_a_walk():
    """The hardest tracks, eight frames at a time, reach the office walk's 20 degrees an image."""
    turns = []
    for seed in range(12):
        s = plan_track((0, 0, seed), 128, SIZE, 1.0, 0)
        poses = torch.from_numpy(s.shot.path.poses(torch.arange(128).numpy() / s.fps))
        rotation = poses[::8, :3, :3]
        turns.append(torch.rad2deg(rotation_angle(rotation[:-1].mT @ rotation[1:])).max())
    assert torch.stack(turns).median() > 20


def test_validation_rooms_are_neither_training_nor_held_out_ones():
    rates = [plan_track((TRAINING, 0, k), 24, SIZE, 1.0, 0) for k in range(10)]
    other = plan_track((VALIDATION, 0, 0), 24, SIZE, 1.0, 0)
    assert other.focal != rates[0].focal
    assert {track.fps == 10 for track in rates} == {True, False}
    assert TRAINING == 0 and VALIDATION not in (0, 1), "1 is the bank of the held-out sequences"


def test_jpeg_and_the_other_changes_leave_clips_recognisable(wide):
    torch.manual_seed(0)
    images = wide.images[..., :126, :210].repeat(8, 1, 1, 1, 1)
    assert torch.allclose(compress(images, torch.zeros(8)), images, atol=1e-5)
    error = [(compress(images, torch.full((8,), c)) - images).std() for c in (0.1, 0.4, 1.0)]
    assert 0 < error[0] < error[1] < error[2] < 0.06
    chosen = torch.tensor([True, True, False, True, True, True, True, True])
    changed = augment(images, chosen)
    assert torch.equal(changed[2], images[2])
    changed, images = changed[chosen], images[chosen]
    assert changed.shape == images.shape and changed.min() >= 0 and changed.max() <= 1
    assert (changed - images).abs().mean() > 0.02
    grey, was = changed.mean(2).flatten(1), images.mean(2).flatten(1)
    alike = [torch.corrcoef(torch.stack((a, b)))[0, 1] for a, b in zip(grey, was)]
    assert min(alike) > 0.7


def test_the_truth_does_not_depend_on_the_precision_of_matrix_products(wide):
    """A GPU trains in TF32 and bfloat16, which poses and depth must not see."""
    views = draw_views(wide, SIZE, torch.Generator().manual_seed(4))
    clips = look(wide, views, SIZE)
    target = make_targets(clips.poses, clips.depth, clips.focal, 2)
    with torch.autocast("cpu", torch.bfloat16):
        again = draw_views(wide, SIZE, torch.Generator().manual_seed(4))
        coarse = look(wide, again, SIZE)
        coarse_target = make_targets(clips.poses, clips.depth, clips.focal, 2)
    assert all(torch.equal(a, b) for a, b in zip(views, again))
    assert torch.equal(coarse.poses, clips.poses) and torch.equal(coarse.depth, clips.depth)
    assert all(torch.equal(a, b) for a, b in zip(target, coarse_target))


def test_targets_follow_the_view(wide):
    """Zoomed by 1.25 the field of view is smaller, and nothing else differs but the unit."""
    identity = torch.eye(3).expand(1, 6, 3, 3)
    near = look(wide, Views(wide.focal * 1.25 * 210 / 315, identity), SIZE)
    target = make_targets(near.poses, near.depth, near.focal, 2)
    source = make_targets(wide.poses, wide.depth, wide.focal, 2)
    assert torch.allclose(torch.tan(target.fov / 2) * 1.25, torch.tan(source.fov / 2))
    assert torch.allclose(target.quaternion, source.quaternion)
    scale = target.translation.norm() / source.translation.norm()
    assert torch.allclose(target.translation, scale * source.translation, atol=1e-4)
