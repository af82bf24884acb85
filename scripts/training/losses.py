# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Targets and losses: poses, relative poses, fields of view and depth."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lingbot_map_ros.geometry.poses import matrix_to_quaternion

from .exact import apply, product

ITERATION_DECAY = 0.7
PAIR_GAPS = ((1, 3.0), (2, 2.0), (4, 1.5), (8, 1.5), (16, 1.0), (32, 0.5), (64, 0.3))
WEIGHTS = {
    "translation": 1.2,
    "rotation": 1.5,
    "pair_translation": 1.5,
    "pair_rotation": 4.0,
    "fov": 2.5,
    "depth": 1.5,
    "relative_depth": 2.0,
    "gradient": 0.5,
    "points": 0.4,
    "flow": 0.3,
    "motion": 1.0,
}
CONFIDENCE_REWARD = 0.2
WORST = 5.0  # times the true depth; further off is no worse
_EPS = 1e-4


class Targets(NamedTuple):
    """Ground truth of ``B`` clips in the unit and frame that the network answers in.

    The unit is the geometric mean depth of the scale frames, the frame that of the first camera:
    ``translation [B, S, 3]``, ``quaternion [B, S, 4]`` xyzw, ``fov [B, 2]`` vertical, horizontal,
    ``depth [B, S, H, W]`` (0 where unknown).
    """

    translation: Tensor
    quaternion: Tensor
    fov: Tensor
    depth: Tensor


def make_targets(poses: Tensor, depth: Tensor, focal: Tensor, scale_frames: int) -> Targets:
    """Normalise camera-to-world ``poses``, ``depth`` in metres and ``focal [B, 2]`` (x, y)."""
    height, width = depth.shape[-2:]
    rotation, centre = poses[..., :3, :3], poses[..., :3, 3]
    inverse = rotation[:, :1].transpose(-1, -2)
    local = apply(inverse, centre - centre[:, :1])
    first = depth[:, :scale_frames]
    known = first > 0
    logs = torch.where(known, first, 1).log().sum((1, 2, 3)) / known.sum((1, 2, 3)).clamp(min=1)
    unit = logs.exp()[:, None, None]
    size = torch.tensor([height, width], device=focal.device, dtype=focal.dtype)
    return Targets(
        translation=local / unit,
        quaternion=matrix_to_quaternion(product(inverse, rotation)),
        fov=2 * torch.atan(size / 2 / focal.flip(-1)),
        depth=depth / unit[..., None],
    )


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.cross(*torch.broadcast_tensors(a, b))


def quaternion_product(a: Tensor, b: Tensor) -> Tensor:
    """Hamilton product of quaternions xyzw ``[..., 4]``."""
    av, aw, bv, bw = a[..., :3], a[..., 3:], b[..., :3], b[..., 3:]
    vector = aw * bv + bw * av + _cross(av, bv)
    return torch.cat((vector, aw * bw - (av * bv).sum(-1, keepdim=True)), dim=-1)


def conjugate(q: Tensor) -> Tensor:
    """Inverse of unit quaternions xyzw."""
    return torch.cat((-q[..., :3], q[..., 3:]), dim=-1)


def turn(q: Tensor, v: Tensor) -> Tensor:
    """Rotate vectors ``[..., 3]`` by unit quaternions xyzw."""
    cross = 2 * _cross(q[..., :3], v)
    return v + q[..., 3:] * cross + _cross(q[..., :3], cross)


def rotation_error(a: Tensor, b: Tensor) -> Tensor:
    """Angle in radians between unit quaternions (its sine of the half, doubled; smooth at 0)."""
    vector = quaternion_product(conjugate(a), b)[..., :3]
    return 2 * (vector.square().sum(-1) + _EPS**2).sqrt()


def _length(v: Tensor) -> Tensor:
    return (v.square().sum(-1) + _EPS**2).sqrt()


def pose_losses(poses: Tensor, target: Targets) -> dict[str, Tensor]:
    """Losses of the encodings ``poses [iterations, B, S, 9]``, later iterations weighing more."""
    iterations, _, frames = poses.shape[:3]
    weights = ITERATION_DECAY ** torch.arange(iterations - 1, -1, -1, device=poses.device)
    weights = weights / weights.sum()

    def mean(error: Tensor) -> Tensor:
        return (error.flatten(1).mean(1) * weights).sum()

    translation = poses[..., :3]
    raw = poses[..., 3:7]
    quaternion = raw / raw.square().sum(-1, keepdim=True).clamp(min=1e-8).sqrt()
    # Far from the start only the relative size of an error counts.
    reach = 1 + 0.5 * target.translation.norm(dim=-1)
    losses = {
        "translation": mean(_length(translation - target.translation) / reach),
        "rotation": mean(rotation_error(quaternion, target.quaternion)),
        "fov": mean((poses[..., 7:] - target.fov[:, None]).abs()),
    }
    first, second, weight = _pairs(frames, poses.device)
    moved, turned = relative_motion(translation, quaternion, first, second)
    true_moved, true_turned = relative_motion(target.translation, target.quaternion, first, second)
    losses["pair_rotation"] = mean(rotation_error(turned, true_turned) * weight)
    losses["pair_translation"] = mean(_length(moved - true_moved) * weight)
    return losses


def _pairs(frames: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs of frames ``PAIR_GAPS`` apart, weighted so that each gap counts by its own weight."""
    gaps = [(gap, weight) for gap, weight in PAIR_GAPS if gap < frames]
    first = torch.cat([torch.arange(frames - gap) for gap, _ in gaps])
    second = torch.cat([torch.arange(gap, frames) for gap, _ in gaps])
    each = [torch.full((frames - gap,), weight / (frames - gap)) for gap, weight in gaps]
    weight = torch.cat(each) * len(first) / len(gaps)
    return first.to(device), second.to(device), weight.to(device)


def relative_motion(
    translation: Tensor, quaternion: Tensor, first: Tensor, second: Tensor
) -> tuple[Tensor, Tensor]:
    """Motion from the frames ``first`` to the frames ``second``, seen from the first."""
    inverse = conjugate(quaternion[..., first, :])
    moved = turn(inverse, translation[..., second, :] - translation[..., first, :])
    return moved, quaternion_product(inverse, quaternion[..., second, :])


def depth_losses(depth: Tensor, confidence: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Confidence-weighted error of log depth, and of its differences over several distances."""
    known = target > 0
    error = (depth.clamp(min=1e-4).log() - torch.where(known, target, 1).log()) * known
    weighted = confidence * error.abs() - CONFIDENCE_REWARD * confidence.log()
    count = known.sum().clamp(min=1)
    gradient = []
    for step in (1, 4, 16):
        for axis in (-1, -2):
            length = error.shape[axis] - step
            both = known.narrow(axis, 0, length) & known.narrow(axis, step, length)
            slope = error.narrow(axis, step, length) - error.narrow(axis, 0, length)
            gradient.append((slope.abs().clamp(max=1.0) * both).sum() / both.sum().clamp(min=1))
    return {
        "depth": (weighted * known).sum() / count,
        # AbsRel. Where the network is unsure "depth" counts little, and this fully. Too far counts
        # more than too near, which near things in front of far ones need.
        "relative_depth": error.clamp(max=math.log(WORST)).expm1().abs().sum() / count,
        "gradient": torch.stack(gradient).mean(),
    }


def total_loss(losses: dict[str, Tensor]) -> Tensor:
    """Weighted sum of the losses that have a weight."""
    return torch.stack([WEIGHTS[k] * v for k, v in losses.items() if k in WEIGHTS]).sum()
