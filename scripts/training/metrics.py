# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Accuracy of one sequence: what the training log and the evaluation report."""

import math

import numpy as np
from torch import Tensor

from lingbot_map_ros.geometry.poses import decode_pose, rotation_angle
from lingbot_map_ros.geometry.sim3 import umeyama

RPE_FRAMES = 10


def sequence_metrics(
    pose_enc: np.ndarray,
    depth: np.ndarray,
    true_poses: np.ndarray,
    true_depth: np.ndarray,
    true_fov: np.ndarray,
) -> dict[str, float]:
    """Compare a predicted sequence with the truth.

    ``pose_enc [S, 9]``, ``depth [S, H, W]``, ``true_poses [S, 4, 4]`` camera-to-world,
    ``true_depth [S, H, W]`` (0 unknown), ``true_fov [2]`` radians. Returns ``ate`` (RMSE after
    Sim(3), share of the path), ``rpe_deg`` (mean rotation error over ten frames), ``absrel`` (after
    median scaling of the whole sequence), ``fov_deg`` (mean error), ``path`` metres.
    """
    poses, fov = decode_pose(pose_enc.astype(np.float64))
    centres, truth = poses[:, :3, 3], true_poses[:, :3, 3].astype(np.float64)
    error = umeyama(centres, truth).apply(centres) - truth
    path = float(np.linalg.norm(np.diff(truth, axis=0), axis=1).sum())
    return {
        "ate": float(np.sqrt((error**2).sum(1).mean())) / max(path, 1e-9),
        "rpe_deg": rotation_rpe(poses, true_poses),
        "absrel": scaled_absrel(depth, true_depth),
        "fov_deg": float(np.degrees(np.abs(fov - true_fov).mean())),
        "path": path,
    }


def rotation_rpe(poses: np.ndarray, truth: np.ndarray, frames: int = RPE_FRAMES) -> float:
    """Mean error in degrees of the rotation over ``frames`` frames."""

    def relative(p: np.ndarray) -> np.ndarray:
        rotation = p[:, :3, :3].astype(np.float64)
        return rotation[:-frames].transpose(0, 2, 1) @ rotation[frames:]

    error = relative(poses).transpose(0, 2, 1) @ relative(truth)
    return float(np.degrees(rotation_angle(error).mean()))


def scaled_absrel(depth: np.ndarray, true_depth: np.ndarray) -> float:
    """AbsRel where the truth is known (above 0), after median scaling; NaN if it is nowhere."""
    known = true_depth > 0
    if not known.any():
        return math.nan
    depth, true_depth = depth[known], true_depth[known]
    ratio = np.median(true_depth / depth)
    return float((np.abs(depth * ratio - true_depth) / true_depth).mean())


def image_absrel(depth: Tensor, true_depth: Tensor) -> float:
    """Mean AbsRel of images ``[S, H, W]`` (true depth 0 where unknown), each at its own scale."""
    errors = [
        scaled_absrel(predicted.float().cpu().numpy(), true.float().cpu().numpy())
        for predicted, true in zip(depth, true_depth)
        if (true > 0).any()
    ]
    return float(np.mean(errors)) if errors else math.nan
