# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of clips for training."""

import torch

from lingbot_map_ros.synthetic.clips import ClipSampler
from lingbot_map_ros.synthetic.textures import SIZE


def test_clips_for_training():
    textures = torch.randint(0, 256, (3, SIZE, SIZE, 3), dtype=torch.uint8)
    sampler = ClipSampler(2, 3, 56, 42, seed=4, textures=textures, kinds=("drive", "rotate"))
    try:
        clips, later = sampler.sample(), sampler.sample()
    finally:
        sampler.close()
    assert clips["images"].shape == (2, 3, 3, 42, 56)
    assert clips["images"].min() >= 0 and clips["images"].max() <= 1
    assert clips["depth"].shape == (2, 3, 42, 56) and clips["depth"].min() > 0.1
    assert clips["poses"].shape == (2, 3, 4, 4) and clips["intrinsics"].shape == (2, 3, 3)
    assert not torch.equal(clips["depth"], later["depth"])
    again = ClipSampler(2, 3, 56, 42, seed=4, textures=textures, kinds=("drive", "rotate"))
    try:
        torch.testing.assert_close(again.sample(), clips, rtol=0, atol=0)
    finally:
        again.close()


def test_batched_rendering_equals_tiled():
    """The static-shape path of the GPU and the culled tiles of the CPU draw the same picture."""
    sampler = ClipSampler(2, 2, 64, 48, seed=9)
    try:
        tiled = sampler.sample()
    finally:
        sampler.close()
    batched = ClipSampler(2, 2, 64, 48, seed=9, compiled=False)
    batched._on_cpu = batched._at_once
    try:
        whole = batched.sample()
    finally:
        batched.close()
    close = (tiled["depth"] / whole["depth"] - 1).abs() < 1e-4
    assert close.float().mean() > 0.999
    assert (tiled["images"] - whole["images"]).abs().mean() < 1e-3
