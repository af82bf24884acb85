# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Sequences to evaluate on, the streamed prediction, and the figures that come of it."""

import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lingbot_map_ros.geometry.poses import decode_pose, matrix_to_quaternion
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.streaming.preprocessing import Preprocessor
from lingbot_map_ros.synthetic.sequence import HELD_OUT, KINDS, make_sequence

from .metrics import sequence_metrics

FRAME_SECONDS = 0.1


@dataclass(frozen=True)
class Track:
    """A sequence with its truth, at the network's size.

    ``images [S, H, W, 3]`` uint8, ``depth [S, H, W]``, camera-to-world ``poses``, ``focal`` (x, y).
    """

    name: str
    images: np.ndarray
    depth: np.ndarray
    poses: np.ndarray
    focal: tuple[float, float]


@dataclass(frozen=True)
class Result:
    """Figures of one sequence; smaller is better."""

    name: str
    figures: dict[str, float]


def synthetic_tracks(model: GCTStream, count: int, frames: int) -> Iterator[Track]:
    """Held-out rooms, every kind of motion in turn, as hard as they come."""
    height, width = _size(model)
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        s = make_sequence(HELD_OUT + number, frames, width, height, kind, 1.0)
        focal = (s.intrinsics[0, 0], s.intrinsics[1, 1])
        yield Track(f"{kind}_{number}", s.images, s.depth, s.poses, focal)


def openarena_tracks(folder: Path, count: int, frames: int) -> Iterator[Track]:
    """Held-out clips, from as many different maps as there are."""
    paths = sorted((folder / "held_out").glob("[!.]*.npz"), key=lambda p: p.stem.rsplit("_")[::-1])
    for path in paths[:count]:
        with np.load(path) as clip:
            yield Track(
                path.stem,
                clip["images"][:frames],
                clip["depth"][:frames].astype(np.float32),
                clip["poses"][:frames].astype(np.float64),
                tuple(clip["focal"]),
            )


def stream(model: GCTStream, images: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Feed ``images [S, 3, H, W]`` frame by frame: encodings ``[S, 9]`` and depth ``[S, H, W]``."""
    model.reset()
    first = min(model.config.num_scale_frames, len(images))
    calls = [images[:first], *images[first:].split(1)]
    predictions = [model.step(call.to(model.device)) for call in calls]
    poses = torch.cat([p.pose_enc for p in predictions]).cpu().numpy()
    depth = torch.cat([p.depth for p in predictions if p.depth is not None]).cpu().numpy()
    return poses, depth


def evaluate_track(model: GCTStream, track: Track) -> Result:
    """Stream a track and compare it with its truth; ATE by evo."""
    pose_enc, depth = stream(model, _tensor(track.images))
    height, width = track.depth.shape[-2:]
    fov = np.array(
        [2 * math.atan(height / 2 / track.focal[1]), 2 * math.atan(width / 2 / track.focal[0])]
    )
    figures = sequence_metrics(pose_enc, depth, track.poses, track.depth, fov)
    ate = evo_ate(decode_pose(pose_enc.astype(np.float64))[0], track.poses)
    path = figures.pop("path")
    del figures["ate"]
    return Result(track.name, {"ate_percent": 100 * ate / path, "ate_m": ate, **figures})


def evaluate_photos(model: GCTStream, folder: Path) -> Result:
    """Stream photographs; ATE against the folder's ``truth.tum`` (stamps: frame numbers)."""
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    images = [np.asarray(Image.open(p).convert("RGB")) for p in paths]
    preprocess = Preprocessor(*images[0].shape[:2], model.config)
    pose_enc, _ = stream(model, torch.stack([preprocess(image) for image in images]))
    rows = np.loadtxt(folder / "truth.tum")
    poses = decode_pose(pose_enc.astype(np.float64))[0]
    index = rows[:, 0].round().astype(int)
    truth = np.tile(np.eye(4), (len(rows), 1, 1))
    truth[:, :3, 3] = rows[:, 1:4]
    ate = evo_ate(poses[index], truth)
    path = np.linalg.norm(np.diff(rows[:, 1:4], axis=0), axis=1).sum()
    return Result(folder.name, {"ate_percent": 100 * ate / path})


def checks(model: GCTStream, frames: int) -> dict[str, float]:
    """Whether the model looks at the images: orders that it must tell apart, a camera that stands.

    ``forward``, ``reversed``: ATE in percent of the path of a sequence and of the same backwards,
    against the truth in that order. ``reversed_as_forward``, ``shuffled``: against the truth in the
    original order (must be worse). ``frozen``: path of a camera that does not move, in percent of
    the path of the moving one.
    """
    height, width = _size(model)
    s = make_sequence(HELD_OUT + 500, frames, width, height, "drive", 0.6)
    images = _tensor(s.images)
    path = np.linalg.norm(np.diff(s.poses[:, :3, 3], axis=0), axis=1).sum()

    def centres(order: Tensor) -> np.ndarray:
        return decode_pose(stream(model, images[order])[0].astype(np.float64))[0]

    def percent(poses: np.ndarray, truth: np.ndarray) -> float:
        return 100 * evo_ate(poses, truth) / path

    order = torch.arange(frames)
    shuffled = torch.randperm(frames, generator=torch.Generator().manual_seed(0))
    forward, backward = centres(order), centres(order.flip(0))

    def length(poses: np.ndarray) -> float:
        return float(np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1).sum())

    return {
        "forward": percent(forward, s.poses),
        "reversed": percent(backward, s.poses[::-1]),
        "reversed_as_forward": percent(backward, s.poses),
        "shuffled": percent(centres(shuffled), s.poses),
        "frozen": 100 * length(centres(torch.zeros_like(order))) / length(forward),
    }


def frame_rate(model: GCTStream, frames: int = 40) -> float:
    """Frames per second with a full window, camera image to pose and depth."""
    height, width = _size(model)
    images = torch.rand(
        model.config.num_scale_frames + model.config.sliding_window, 3, height, width
    )
    stream(model, images)
    start = time.perf_counter()
    for _ in range(frames):
        model.step(images[:1].to(model.device))
    return frames / (time.perf_counter() - start)


def evo_ate(poses: np.ndarray, truth: np.ndarray) -> float:
    """RMSE in metres of camera centres after Sim(3) alignment, by the program evo_ape."""
    beside = Path(sys.executable).parent / "evo_ape"
    program = str(beside) if beside.is_file() else shutil.which("evo_ape")
    if program is None:
        raise RuntimeError(f"evo is missing; install it with: {sys.executable} -m pip install evo")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, values in (("truth.tum", truth), ("estimate.tum", poses)):
            stamps = np.arange(len(values))[:, None] * FRAME_SECONDS
            quaternions = matrix_to_quaternion(values[:, :3, :3])
            np.savetxt(folder / file, np.hstack([stamps, values[:, :3, 3], quaternions]), "%.9f")
        result = folder / "result.zip"
        arguments = ["tum", folder / "truth.tum", folder / "estimate.tum", "--align"]
        arguments += ["--correct_scale", "--no_warnings", "--save_results", result]
        subprocess.run([program, *map(str, arguments)], check=True, capture_output=True)
        with zipfile.ZipFile(result) as archive:
            return float(json.loads(archive.read("stats.json"))["rmse"])


def _size(model: GCTStream) -> tuple[int, int]:
    config = model.config
    return config.image_height or config.image_size, config.image_size


def _tensor(images: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 255
