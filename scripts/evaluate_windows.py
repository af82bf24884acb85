# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Accuracy of streams without an end: windows that open from one another, on held-out loops.

::

    python scripts/evaluate_windows.py --output windows.json

Each loop is streamed twice: in windows, and in a single one as long as the loop. Errors are RMSE in
metres of the camera centres after a Sim(3) alignment to the truth. The single window's error is
given as it is at that length, and as it would be by extrapolation: what the first frames of single
windows err by, up to the length that the model was trained on, grows with a power of the length,
which is continued to the whole loop. The reference's own way to join windows (contract 9.3: last
shared keyframe, lower median of depth ratios) is applied to the same outputs. In each overlap each
keyframe in turn is made an outlier, and how far that moves the map is measured.
"""

from __future__ import annotations

import lingbot_map_ros.passive_threads  # noqa: F401 (before PyTorch)

# isort: split

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from lingbot_map_ros.geometry.alignment import AlignmentQuality, KeyframeView, align_keyframes
from lingbot_map_ros.geometry.poses import (
    decode_pose,
    encode_pose,
    invert,
    make_pose,
    rotation_angle,
)
from lingbot_map_ros.geometry.projection import transform_points, unproject
from lingbot_map_ros.geometry.sim3 import IDENTITY, Sim3, umeyama
from lingbot_map_ros.geometry.stitching import Window, align_window
from lingbot_map_ros.models.checkpoint import load_model
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.streaming import windows
from lingbot_map_ros.streaming.results import FrameResult
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession
from lingbot_map_ros.synthetic.sequence import HELD_OUT, make_sequence

FIRST_SEED = HELD_OUT + 700
PERIOD_NS = 100_000_000
TARGETS = {
    "against a single window": 1.5,
    "against it by extrapolation": 1.5,
    # One frame's own motion, and a jump no larger than that.
    "odometry at a switch": 2.0,
    "outlier, of the scene": 0.01,
}
OUTLIER = make_pose(cv2.Rodrigues(np.array([0.3, 0.2, 0.0]))[0], [0.27, 0.1, -0.17])
"""Error of the outlier's pose, in depths of the scene."""
OUTLIER_DEPTH = 1.7
STRIDE = 6


@dataclass(frozen=True)
class Switch:
    """What two windows said of their shared keyframes, and the transform that was made of it."""

    reference: Sequence[KeyframeView]
    current: Sequence[KeyframeView]
    fit: Sim3
    quality: AlignmentQuality


@contextmanager
def recorded() -> Iterator[list[Switch]]:
    """Collect the switches of the sessions that run meanwhile."""
    switches: list[Switch] = []

    def align(
        reference: Sequence[KeyframeView], current: Sequence[KeyframeView]
    ) -> tuple[Sim3, AlignmentQuality]:
        fit, quality = align_keyframes(reference, current)
        switches.append(Switch(reference, current, fit, quality))
        return fit, quality

    with patch.object(windows, "align_keyframes", align):
        yield switches


def stream(
    model: GCTStream, images: NDArray[np.uint8], config: SessionConfig
) -> tuple[list[FrameResult], StreamingSession]:
    """Results of a session over all images, uint8 ``[N, H, W, 3]``, and the session."""
    session = StreamingSession(model, config)
    results: list[FrameResult] = []
    for i, image in enumerate(images):
        results += session.step(image, i * PERIOD_NS)
    return results, session


def single_window(model: GCTStream, images: NDArray[np.uint8]) -> NDArray:
    """Poses ``[N, 4, 4]`` of one window over all images, whatever the guard would say of it."""
    frames = torch.from_numpy(images).permute(0, 3, 1, 2).float().to(model.device) / 255
    scale = model.config.num_scale_frames
    model.reset()
    calls = [frames[:scale], *frames[scale:].split(1)]
    encodings = torch.cat([model.step(call, depth=False).pose_enc for call in calls])
    return decode_pose(encodings.double().cpu().numpy())[0]


def ate(poses: NDArray, truth: NDArray) -> float:
    """RMSE of the camera centres of poses ``[N, 4, 4]`` after Sim(3), in the truth's unit."""
    centres, true = poses[:, :3, 3], truth[:, :3, 3]
    error = umeyama(centres, true).apply(centres) - true
    return float(np.sqrt((error**2).sum(1).mean()))


def joined_by_contract(results: list[FrameResult], switches: list[Switch]) -> NDArray:
    """Poses ``[N, 4, 4]`` with the reference's alignment instead, from the same outputs."""
    moves = [IDENTITY]  # from the map as it was to the map as it would be
    for switch in switches:
        fit = moves[-1].compose(_contract_fit(switch))
        moves.append(fit.compose(switch.fit.inverse()))
    return np.stack([moves[result.window].apply_pose(result.pose_map) for result in results])


def _contract_fit(switch: Switch) -> Sim3:
    def window(views: Sequence[KeyframeView]) -> Window:
        height, width = next(v.depth.shape for v in views if v.depth is not None)
        shape = height, width
        poses = np.stack([view.T for view in views])
        depth = np.stack([np.full(shape, np.nan) if v.depth is None else v.depth for v in views])
        encoded = encode_pose(poses, np.tile(np.eye(3), (len(views), 1, 1)), shape)
        return Window(encoded, depth, np.ones_like(depth), np.ones(len(views), bool))

    return align_window(window(switch.reference), window(switch.current), len(switch.current))


def outlier_shift(switch: Switch, K: NDArray[np.float64]) -> float:
    """How far an outlier among the shared keyframes moves the map, as a share of the scene's size.

    The median over what the keyframes see, for the worst of the keyframes. The size is the diagonal
    of the box that holds the middle nine tenths of it on each axis. K ``[3, 3]`` is the depth's.
    """
    clouds = [
        transform_points(view.T, unproject(view.depth, K, STRIDE).reshape(-1, 3))
        for view in switch.reference
        if view.depth is not None
    ]
    points = np.concatenate(clouds)
    low, high = np.percentile(points, (5, 95), axis=0)
    seen = switch.fit.inverse().apply(points)
    wrong = OUTLIER.copy()
    wrong[:3, 3] *= switch.quality.scene_depth / switch.fit.scale
    shifts = []
    for i, view in enumerate(switch.current):
        depth = None if view.depth is None else view.depth * np.float32(OUTLIER_DEPTH)
        current = list(switch.current)
        current[i] = replace(view, T=view.T @ wrong, depth=depth)
        fit, _ = align_keyframes(switch.reference, current)
        shifts.append(np.median(np.linalg.norm(fit.apply(seen) - points, axis=-1)))
    return float(max(shifts) / np.linalg.norm(high - low))


def odometry_steps(results: list[FrameResult]) -> tuple[NDArray, NDArray, NDArray[np.bool_]]:
    """Length and angle of each step of the odometry ``[N - 1]``, and which are window switches."""
    poses = np.stack([result.pose_odom for result in results])
    steps = invert(poses[:-1]) @ poses[1:]
    switch = np.array([a.window != b.window for a, b in pairwise(results)])
    return np.linalg.norm(steps[:, :3, 3], axis=-1), rotation_angle(steps), switch


def switch_jump(results: list[FrameResult]) -> float:
    """Largest step at a switch, as a share of the largest elsewhere; of length or of angle."""
    length, angle, switch = odometry_steps(results)
    return float(
        max(
            length[switch].max() / length[~switch].max(), angle[switch].max() / angle[~switch].max()
        )
    )


def evaluate_loop(
    model: GCTStream, images: NDArray[np.uint8], truth: NDArray, config: SessionConfig
) -> dict[str, object]:
    """Figures of one loop of images of the network's size; the model has room for all frames."""
    with recorded() as switches:
        results, session = stream(model, images, config)
    single = single_window(model, images)
    poses = np.stack([result.pose_map for result in results])
    lengths = range(30, len(single) + 1, 15)
    return {
        "windows": results[-1].window + 1,
        "withheld": session.status().withheld,
        "path_m": float(np.linalg.norm(np.diff(truth[:, :3, 3], axis=0), axis=1).sum()),
        "ate_m": ate(poses, truth[[r.index for r in results]]),
        "contract_ate_m": ate(joined_by_contract(results, switches), truth[: len(poses)]),
        "single_ate_m": ate(single, truth[: len(single)]),
        "single_by_length": {n: ate(single[:n], truth[:n]) for n in lengths},
        "odometry_at_switch": switch_jump(results),
        "outlier_shift": max(outlier_shift(s, results[0].intrinsics) for s in switches),
        "alignment_error": [switch.quality.relative_error for switch in switches],
        "scale_of_windows": [switch.fit.scale for switch in switches],
    }


def extrapolated(loops: Sequence[dict], frames: int, trained: int) -> float:
    """Mean error of single windows of `frames` frames, by those of up to `trained` frames."""
    lengths = [n for n in loops[0]["single_by_length"] if n <= trained]
    errors = [np.mean([loop["single_by_length"][n] for loop in loops]) for n in lengths]
    power, factor = np.polyfit(np.log(lengths), np.log(errors), 1)
    return float(np.exp(factor) * frames**power)


def main() -> None:
    """Evaluate, print a table, write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkpoint", default="builtin:small")
    parser.add_argument("--output", type=Path, required=True, help="JSON report")
    parser.add_argument("--loops", type=int, default=4)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--max-keyframes", type=int, default=60, help="of a window")
    parser.add_argument("--overlap-keyframes", type=int, help="default: as many as scale frames")
    parser.add_argument("--trained", type=int, default=120, help="frames of a training clip")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    model = load_model(args.checkpoint, device=args.device, max_keyframes=args.frames + 1)
    height = model.config.image_height or model.config.image_size
    # A window ends early by the frames that may be pending; here none are.
    config = SessionConfig(
        max_keyframes=args.max_keyframes,
        overlap_keyframes=args.overlap_keyframes,
        pending_limit=1,
    )
    loops: list[dict] = []
    for i in range(args.loops):
        difficulty = 0.3 + 0.6 * i / max(args.loops - 1, 1)
        s = make_sequence(
            FIRST_SEED + i, args.frames, model.config.image_size, height, "loop", difficulty
        )
        loops.append(evaluate_loop(model, s.images, s.poses, config))
        print(json.dumps(loops[-1]), flush=True)
        mean = {
            key: float(np.mean([loop[key] for loop in loops]))
            for key in ("ate_m", "contract_ate_m", "single_ate_m")
        }
        single = extrapolated(loops, args.frames, args.trained)
        figures = {
            "against a single window": mean["ate_m"] / mean["single_ate_m"],
            "against it by extrapolation": mean["ate_m"] / single,
            "odometry at a switch": max(loop["odometry_at_switch"] for loop in loops),
            "outlier, of the scene": max(loop["outlier_shift"] for loop in loops),
        }
        report = {**mean, "extrapolated_ate_m": single, "figures": figures, "loops": loops}
        args.output.write_text(json.dumps(report, indent=1))
    for name, value in {**mean, "extrapolated_ate_m": single}.items():
        print(f"{name:28} {value:8.3f}")
    for name, target in TARGETS.items():
        print(f"{name:28} {figures[name]:8.3f}   at most {target:g}")


if __name__ == "__main__":
    main()
