# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What makes a network use parallax, and what tells whether it does: flow targets and figures."""

import math

import pytest
import torch
from training import validation
from training.distributed import World
from training.losses import make_targets
from training.metrics import image_absrel
from training.readouts import PATCH, AuxiliaryHeads, _flow, _keyframes_back, patch_points
from training.schedule import SCALE_FRAMES, WINDOW
from training.store import Clips
from training.validation import Validation

from lingbot_map_ros.models.clip import ClipLayout, ClipMask, ClipPrediction, forward_clip
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream

SIZE = (126, 210)
FOCAL = (105.0, 90.0)
AWAY = 2.0
STEP = (0.12, -0.06)
"""Metres that the camera moves from keyframe to keyframe, right and down."""
SPECIAL = 6
LAYOUTS = [ClipLayout(20, 4, 4, 16), ClipLayout(20, 1, 4, 16, 2), ClipLayout(21, 4, 4, 16, 2)]


def plane(layout):
    """A camera that looks straight at a wall; a skipped frame is where the next keyframe is."""
    poses = torch.eye(4).repeat(1, layout.frames, 1, 1)
    poses[0, :, :2, 3] = layout.times()[:, None] * torch.tensor(STEP)
    depth = torch.full((1, layout.frames, *SIZE), AWAY)
    return make_targets(poses, depth, torch.tensor([FOCAL]), layout.first_call)


def disparity(steps):
    """Way in patches (x, y) of a point of the wall back to its place so many keyframes before."""
    return torch.tensor([steps * f * s / AWAY / PATCH for f, s in zip(FOCAL, STEP)])


def heads_that_say(flows):
    """Heads whose every quarter says these ``flows``, whatever the network puts out."""
    heads = AuxiliaryHeads(8, 1)
    with torch.no_grad():
        heads.patches[0].weight.zero_()
        heads.patches[0].bias.view(heads.QUARTERS, -1)[:, 4:] = torch.cat(flows)
    return heads


def flow_loss(heads, layout, target):
    rows, columns = (n // PATCH for n in SIZE)
    outputs = [torch.zeros(1, layout.frames, SPECIAL + rows * columns, 8)]
    return float(heads(outputs, target, layout.previous(), SPECIAL)["flow"].detach())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_keyframes_are_counted_back_over_skipped_frames(layout):
    kept = layout.kept().tolist()
    found = _keyframes_back(layout.previous(), (1, 2, 6))
    for steps, (frame, exists) in zip((1, 2, 6), found, strict=True):
        for i in range(layout.frames):
            before = [k for k in range(i) if kept[k]]
            assert bool(exists[i]) == (len(before) >= steps), (steps, i)
            if exists[i]:
                assert frame[i] == before[-steps], (steps, i)
    six = found[-1][1]
    assert six.any() and not six.all()


def test_the_sixth_keyframe_back():
    frame, exists = _keyframes_back(ClipLayout(9, 4, 4, 16).previous(), (6,))[0]
    assert exists.tolist() == [False] * 6 + [True] * 3 and frame[6:].tolist() == [0, 1, 2]
    # Frames 0, 1, 3, 5, 7, 9, 11 and 13 are keyframes.
    frame, exists = _keyframes_back(ClipLayout(14, 1, 4, 16, 2).previous(), (6,))[0]
    assert exists.tolist() == [False] * 10 + [True] * 4 and frame[10:].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_flow_before_a_wall_is_the_disparity(layout):
    target = plane(layout)
    depth, points = patch_points(target)
    steps = AuxiliaryHeads.KEYFRAMES_BACK
    assert steps == (1, 6)
    for step, (frame, exists) in zip(steps, _keyframes_back(layout.previous(), steps)):
        flow, seen = _flow(target, points, depth, frame, exists)
        assert not seen[:, ~exists].any()
        assert 0.6 < seen[:, exists].mean() < 1, "some of the wall has come into sight since"
        wanted = disparity(step).expand_as(flow)
        assert torch.allclose(flow[seen > 0], wanted[seen > 0], atol=1e-4)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_only_frames_with_a_keyframe_so_far_back_count_in_the_loss(layout):
    """Those without one have moved less since the first, which would be an error."""
    target = plane(layout)
    truth = [disparity(1), disparity(6)]
    assert flow_loss(heads_that_say(truth), layout, target) < 1e-4
    for wrong in (0, 1):
        said = list(truth)
        said[wrong] = said[wrong] + torch.tensor([0.5, -1.5])
        loss = flow_loss(heads_that_say(said), layout, target)
        assert loss == pytest.approx(2 / 1.2 / 2, rel=1e-3), "half of the loss for each distance"


def test_a_clip_without_a_keyframe_so_far_back_has_a_loss_without_it():
    layout = ClipLayout(6, 4, 4, 16)
    said = [disparity(1), torch.full((2,), 9.0)]
    assert flow_loss(heads_that_say(said), layout, plane(layout)) < 1e-4


def test_absrel_of_images_has_a_scale_for_each():
    true = torch.tensor([[[2.0, 2.0, 2.0]], [[1.0, 2.0, 4.0]]])
    depth = torch.tensor([[[1.0, 2.0, 4.0]], [[0.1, 0.2, 0.4]]])
    assert image_absrel(depth[1:], true[1:]) == pytest.approx(0, abs=1e-6)
    assert image_absrel(depth[:1], true[:1]) == pytest.approx((0.5 + 0 + 1) / 3)
    assert image_absrel(depth, true) == pytest.approx(0.25)
    factors = torch.tensor([7.0, 0.01])[:, None, None]
    assert image_absrel(factors * depth, true) == pytest.approx(0.25)
    assert image_absrel(factors.half() * depth.half(), true) == pytest.approx(0.25, abs=1e-3)


def test_absrel_of_images_leaves_out_what_is_unknown():
    true = torch.tensor([[[2.0, 0.0, 2.0, 2.0]], [[0.0, 0.0, 0.0, 0.0]]])
    depth = torch.tensor([[[1.0, 1e9, 2.0, 4.0]], [[1.0, 2.0, 3.0, 4.0]]])
    assert image_absrel(depth, true) == pytest.approx(0.5), "an image without truth has no part"
    assert math.isnan(image_absrel(depth[1:], true[1:]))
    assert math.isnan(image_absrel(depth[:0], true[:0]))


@pytest.fixture
def measured(monkeypatch):
    """A function that validates a model on one clip; rooms are not needed."""
    monkeypatch.setattr(validation, "RoomTracks", lambda *_, **__: None)

    def measure(model, clip):
        rank = Validation(World(0, 1), tuple(clip.depth.shape[-2:]), None)
        rank._clips = {"evaluation": [clip]}
        return rank.measure(model)["evaluation"]

    return measure


def walk(frames, still):
    """A clip of noise along a bend, every image the same if ``still``; red is the depth / 10."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand((1, frames, 3, 28, 42), generator=generator) * 0.8 + 0.1
    if still:
        images = images[:, :1].expand_as(images)
    poses = torch.eye(4).repeat(1, frames, 1, 1)
    at = torch.linspace(0, 2, frames)
    poses[0, :, :3, 3] = torch.stack((at, at.sin(), at.cos()), dim=-1)
    return Clips(images, 10 * images[:, :, 0], poses, torch.full((1, 2), 30.0))


@pytest.fixture(scope="module")
def attentive():
    """A network at random, but one that what it attends to matters to."""
    torch.manual_seed(2)
    model = GCTStream(GCTConfig.preset("tiny"), attention_backend="sdpa")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.09 * torch.randn_like(parameter))
    return model


def test_images_all_the_same_have_the_same_depth_streamed_and_alone(attentive, measured):
    figures = measured(attentive, walk(24, still=True))
    assert figures["absrel_image"] > 0.5, "it knows nothing of depth"
    assert figures["absrel_still"] == pytest.approx(figures["absrel_image"], rel=0.02)


def test_what_motion_does_to_the_depth_is_seen(attentive, measured):
    """Against what the network itself says, as it says it in a stream."""
    layout = ClipLayout(24, SCALE_FRAMES, SCALE_FRAMES, WINDOW)
    figures = []
    for still in (True, False):
        clip = walk(24, still)
        with torch.no_grad():
            said = forward_clip(attentive, clip.images, ClipMask(attentive, layout, (28, 42)))
        figures.append(measured(attentive, clip._replace(depth=said.depth[None])))
    assert max(f["absrel_image"] for f in figures) < 1e-5
    same, different = (f["absrel_still"] for f in figures)
    assert 2 * same < different and same < 0.015


def test_depth_that_comes_from_motion_is_told_from_depth_that_comes_from_looks(
    measured, monkeypatch
):
    """With a network that knows the depth of a clip in which things move, or of every image."""
    shapes = []

    def forward(model, images, mask, depth_frames=None):
        batch, frames = images.shape[:2]
        shapes.append((batch, frames))
        moves = (images != images[:, :1]).flatten(1).any(1) | torch.tensor(model == "looks")
        wrong = torch.where(torch.arange(28)[:, None] < 9, 1.3, 1.0)
        depth = images[:, :, 0] * torch.where(moves[:, None, None, None], 1.0, wrong)
        depth = depth.flatten(0, 1)
        poses = torch.zeros(1, batch, frames, 9)
        poses[..., 6:] = 1
        poses[..., :3] = clip.poses[0, :frames, :3, 3]
        chosen = depth if depth_frames is None else depth[depth_frames]
        return ClipPrediction(poses, chosen, torch.ones_like(chosen), [])

    monkeypatch.setattr(validation, "forward_clip", forward)
    monkeypatch.setattr(validation, "ClipMask", lambda *_: None)
    clip = walk(24, still=False)
    figures = measured("motion", clip)
    assert shapes == [(1, 24), (3, 5)], "every eighth image behind the first call, five times"
    assert figures["absrel_image"] == pytest.approx(0, abs=1e-6)
    assert figures["absrel_still"] == pytest.approx(0.3 * 9 / 28, rel=1e-3)
    figures = measured("looks", clip)
    assert figures["absrel_image"] == pytest.approx(0, abs=1e-6)
    assert figures["absrel_still"] == pytest.approx(0, abs=1e-6)
