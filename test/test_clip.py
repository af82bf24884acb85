# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The masked forward over a clip against the frame-by-frame stream."""

import dataclasses

import pytest
import torch

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.models.clip import ClipLayout, ClipMask, FlexAttention, forward_clip
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream

SIZE = (28, 42)


def build(**changes) -> GCTStream:
    torch.manual_seed(0)
    config = dataclasses.replace(GCTConfig.preset("tiny"), **changes)
    model = GCTStream(config, attention_backend="sdpa")
    with torch.no_grad():
        for parameter in model.parameters():
            # Larger than the initial LayerScale and tokens, so that what is attended to matters.
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def stream(model: GCTStream, images: torch.Tensor, layout: ClipLayout):
    model.reset()
    kept = layout.kept()
    poses, depth, confidence = [], [], []
    start = 0
    while start < layout.frames:
        count = layout.first_call if start == 0 else 1
        mode = "keyframe" if kept[start] else "skip"
        p = model.step(images[start : start + count], mode)
        poses.append(torch.stack(p.pose_enc_list))
        depth.append(p.depth)
        confidence.append(p.confidence)
        start += count
    return torch.cat(poses, 1), torch.cat(depth), torch.cat(confidence)


@pytest.mark.parametrize("flex", [False, True])
@pytest.mark.parametrize(
    ("frames", "first_call", "window", "interval"),
    [(12, 3, 4, 1), (12, 1, 2, 1), (9, 5, 1, 1), (14, 3, 2, 3), (3, 3, 4, 1)],
)
def test_equals_stream(flex, frames, first_call, window, interval):
    model = build(sliding_window=window)
    layout = ClipLayout(frames, first_call, model.config.num_scale_frames, window, interval)
    images = torch.rand(frames, 3, *SIZE)
    with torch.no_grad():
        clip = forward_clip(model, images[None], ClipMask(model, layout, SIZE, flex=flex))
        poses, depth, confidence = stream(model, images, layout)
    torch.testing.assert_close(clip.poses[:, 0], poses, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(clip.depth, depth, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(clip.confidence, confidence, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("first_call", [1, 3, 5])
@pytest.mark.parametrize("interval", [1, 2, 3])
@pytest.mark.parametrize(("scale_frames", "window"), [(3, 4), (1, 1), (4, 2)])
def test_computed_visibility_is_that_of_the_layout(first_call, interval, scale_frames, window):
    layout = ClipLayout(13, first_call, scale_frames, window, interval)
    special_tokens, patches = 2, 3
    attend = FlexAttention(
        layout, special_tokens, special_tokens + patches, device=torch.device("cpu")
    )
    key = torch.arange(13 * (special_tokens + patches))
    query = (special_tokens + patches) * torch.arange(13)[:, None]
    computed = attend.block_mask.mask_mod(torch.tensor(0), torch.tensor(0), query, key)
    special = layout.special_visibility().repeat_interleave(special_tokens, 1)
    patch = layout.patch_visibility().repeat_interleave(patches, 1)
    assert torch.equal(computed, torch.cat((special, patch), dim=1))


def test_window_matters():
    model = build()
    images = torch.rand(1, 12, 3, *SIZE)
    with torch.no_grad():
        results = [
            forward_clip(model, images, ClipMask(model, ClipLayout(12, 3, 3, w), SIZE)).poses
            for w in (2, 4)
        ]
    assert (results[0] - results[1]).abs().max() > 1e-3


def test_clips_of_a_batch_are_independent_and_camera_rope_agrees():
    model = build(enable_camera_3d_rope=True)
    layout = ClipLayout(8, 2, model.config.num_scale_frames, 4)
    images = torch.rand(2, 8, 3, *SIZE)
    with torch.no_grad():
        clip = forward_clip(model, images, ClipMask(model, layout, SIZE))
        for b in range(2):
            poses, _, _ = stream(model, images[b], layout)
            torch.testing.assert_close(clip.poses[:, b], poses, atol=1e-4, rtol=1e-4)


def test_depth_of_chosen_frames():
    model = build()
    mask = ClipMask(model, ClipLayout(5, 2, 3, 4), SIZE)
    images = torch.rand(2, 5, 3, *SIZE)
    with torch.no_grad():
        every = forward_clip(model, images, mask)
        some = forward_clip(model, images, mask, torch.tensor([7, 2]))
    torch.testing.assert_close(some.depth, every.depth[[7, 2]], atol=1e-5, rtol=1e-5)


def test_gradients_reach_every_part():
    model = build().train()
    mask = ClipMask(model, ClipLayout(5, 2, 3, 2), SIZE)
    clip = forward_clip(model, torch.rand(1, 5, 3, *SIZE), mask)
    (clip.poses.sum() + clip.depth.sum() + clip.confidence.sum()).backward()
    missing = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert missing == []


@pytest.mark.parametrize(
    "arguments", [(4, 0, 1, 1), (4, 5, 1, 1), (4, 1, 0, 1), (4, 1, 1, 0), (4, 1, 1, 1, 0)]
)
def test_impossible_layouts(arguments):
    with pytest.raises(ConfigurationError):
        ClipLayout(*arguments)
