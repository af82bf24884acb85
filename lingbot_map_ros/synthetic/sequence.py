# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Sequences of synthetic worlds, exact in depth, pose and intrinsics.

Seeds below HELD_OUT make training worlds, seeds from HELD_OUT on make held-out ones; the two draw
their randomness and their textures from separate streams, so they share nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import InputError
from .camera import Camera, pinhole
from .imaging import Imaging, expose, sample_imaging
from .layout import build_world
from .mipmap import TexturePyramid
from .raycast import Scene
from .render import FrameRenderer, in_threads, sample_times
from .textures import procedural_bank
from .trajectory import KINDS, Path, plan_path
from .world import World

HELD_OUT = 1_000_000
TEXTURES = 72
HORIZONTAL_FOV = (math.radians(50.0), math.radians(90.0))
_STREAM = 1  # of random numbers, apart from that of the clips


@dataclass(frozen=True)
class Sequence:
    """A rendered sequence.

    Attributes
    ----------
    images:
        uint8 RGB [N,H,W,3].
    depth:
        float32 [N,H,W], z along the optical axis, metres.
    poses:
        float64 [N,4,4], camera to world (OpenCV optical axes in a REP-103 world), metres.
    intrinsics:
        float64 [3,3], pixel centres at integers.
    stamps_ns:
        int64 [N].
    camera:
        The camera, with its distortion where it has one.
    """

    images: NDArray[np.uint8]
    depth: NDArray[np.float32]
    poses: NDArray[np.float64]
    intrinsics: NDArray[np.float64]
    stamps_ns: NDArray[np.int64]
    camera: Camera

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Shot:
    """Everything drawn at random about a clip except the noise: what ``render`` needs."""

    path: Path
    world: World
    imaging: Imaging
    fov: float


def plan_shot(
    rng: np.random.Generator,
    frames: int,
    kind: str,
    difficulty: float,
    fps: float,
    photographs: int = 0,
) -> Shot:
    """Draw a path, a world around it, a camera's behaviour and its horizontal field of view.

    Raises InputError for an unknown kind, a difficulty outside [0,1], or no frames.
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind of motion {kind!r}; choose one of {', '.join(KINDS)}")
    if not 0.0 <= difficulty <= 1.0:
        raise InputError(f"difficulty must lie in [0, 1], not {difficulty}")
    if frames < 1 or not fps > 0:
        raise InputError(f"a sequence needs frames and a rate above zero, not {frames} at {fps}/s")
    path = plan_path(rng, kind, frames, fps, difficulty)
    world = build_world(rng, path, kind, difficulty, TEXTURES, photographs)
    imaging = sample_imaging(rng, frames, fps, difficulty)
    return Shot(path, world, imaging, rng.uniform(*HORIZONTAL_FOV))


def is_held_out(seed: int) -> bool:
    """Whether a seed makes held-out worlds."""
    return seed >= HELD_OUT


@lru_cache(maxsize=4)
def procedural_pyramid(held_out: bool, device: torch.device) -> TexturePyramid:
    """Procedural textures of training or of held-out worlds on a device; shared between calls."""
    return TexturePyramid(torch.tensor(procedural_bank(int(held_out), TEXTURES)), device)


def make_sequence(
    seed: int,
    num_frames: int,
    width: int,
    height: int,
    kind: str = "drive",
    difficulty: float = 1.0,
    device: str | torch.device = "cpu",
    fps: float = 10.0,
    camera: Camera | None = None,
) -> Sequence:
    """Render a sequence; the same arguments give the same sequence on a CPU.

    ``kind`` is one of KINDS.  ``camera`` replaces the pinhole camera of random field of view that
    the seed would choose, and then sets the size.  Raises InputError for arguments out of range.
    """
    if not 0 <= seed < 2**32:
        raise InputError(f"the seed must lie in [0, 2**32), not {seed}")
    if min(width, height) < 8:
        raise InputError(f"a size of {width}x{height} is too small; take at least 8x8")
    device = torch.device(device)
    held_out = is_held_out(seed)
    rng = np.random.default_rng([_STREAM, int(held_out), seed])
    shot = plan_shot(rng, num_frames, kind, difficulty, fps)
    camera = camera or pinhole(width, height, shot.fov)
    stamps = np.arange(num_frames) / fps
    poses = shot.path.poses(sample_times(stamps, shot.imaging.shutter))
    scene = Scene.stack([shot.world], device)
    textures = procedural_pyramid(held_out, device)
    frame = FrameRenderer(scene, textures, camera)
    shutter_poses = torch.from_numpy(poses).to(device, torch.float32)
    (first,) = in_threads(frame, [shutter_poses[0]])
    reference = first[0].mean()[None]

    def take(k: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        colour, z = frame(shutter_poses[k])
        generator = torch.Generator(device).manual_seed(seed << 24 | k)
        image = expose(colour[None, None], [shot.imaging], reference, k, generator)
        rgb = (image[0, 0].permute(1, 2, 0) * 255).round().to(torch.uint8)
        return rgb.cpu().numpy(), z.cpu().numpy()

    images = np.empty((num_frames, camera.height, camera.width, 3), np.uint8)
    depth = np.empty(images.shape[:3], np.float32)
    for k, (image, z) in enumerate(in_threads(take, range(num_frames))):
        images[k], depth[k] = image, z
    stamps_ns = np.rint(stamps * 1e9).astype(np.int64)
    return Sequence(images, depth, poses[:, 0], camera.intrinsics, stamps_ns, camera)
