# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Outputs of whole streams, and how much two of them differ."""

from collections.abc import Iterator
from typing import TypeAlias

import torch
from torch import Tensor

from lingbot_map_ros.models.gct_stream import GCTStream

Outputs: TypeAlias = tuple[list[Tensor], list[Tensor]]
"""Pose encodings ``[S, 9]`` and depths ``[S, H, W]`` of the calls of a stream, on the CPU."""


def calls(frames: int, scale_frames: int) -> Iterator[tuple[int, int]]:
    """First and last (exclusive) frame of each call of a stream: the scale frames, then one."""
    yield 0, min(scale_frames, frames)
    for start in range(scale_frames, frames):
        yield start, start + 1


def stream(model: GCTStream, images: Tensor) -> Outputs:
    """Poses and depths of every frame."""
    model.reset()
    poses: list[Tensor] = []
    depths: list[Tensor] = []
    for start, end in calls(len(images), model.config.num_scale_frames):
        prediction = model.step(images[start:end].to(model.device))
        poses.append(prediction.pose_enc.cpu())
        if prediction.depth is not None:
            depths.append(prediction.depth.cpu())
    return poses, depths


def differences(got: Outputs, want: Outputs, frames: int | None = None) -> dict[str, float]:
    """Depth REL and absolute pose-encoding differences of the first ``frames`` (all) frames."""
    (poses, depth), (exact_poses, exact) = ([torch.cat(x)[:frames] for x in s] for s in (got, want))
    apart = (poses - exact_poses).abs()
    relative = (depth - exact).abs() / exact
    return {
        "frames": len(poses),
        "depth_rel_mean": float(relative.mean()),
        "depth_rel_p99": float(relative.flatten()[:: relative.numel() // 10**6 + 1].quantile(0.99)),
        "pose_mean": float(apart.mean()),
        "pose_max": float(apart.max()),
        "finite": bool(torch.isfinite(depth).all() and torch.isfinite(poses).all()),
    }
