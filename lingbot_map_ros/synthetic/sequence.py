# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Sequences and training clips of synthetic worlds, exact in depth, pose and intrinsics.

Seeds below HELD_OUT make training worlds, seeds from HELD_OUT on make held-out ones; the two draw
their randomness and their textures from separate streams, so they share nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from .camera import Camera, pinhole
from .imaging import Imaging, expose, sample_imaging
from .layout import build_world
from .mipmap import TexturePyramid
from .raycast import Scene
from .render import SHIFTS, FrameRenderer, in_threads, render_batch, sample_times
from .textures import procedural_bank
from .trajectory import KINDS, Path, plan_path
from .world import World

HELD_OUT = 1_000_000
TEXTURES = 72
HORIZONTAL_FOV = (math.radians(50.0), math.radians(90.0))
_SEQUENCE, _CLIP = 1, 2  # streams of random numbers


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
    if seed < 0 or min(width, height) < 8:
        raise InputError(f"seed {seed} or size {width}x{height} is too small")
    device = torch.device(device)
    held_out = is_held_out(seed)
    rng = np.random.default_rng([_SEQUENCE, int(held_out), seed])
    shot = plan_shot(rng, num_frames, kind, difficulty, fps)
    camera = camera or pinhole(width, height, shot.fov)
    stamps = np.arange(num_frames) / fps
    poses = shot.path.poses(sample_times(stamps, shot.imaging.shutter))
    scene = Scene.stack([shot.world], device)
    textures = _procedural_pyramid(held_out, device)
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


class ClipSampler:
    """Endless batches of random clips of one static shape, for training.

    Parameters
    ----------
    batch, frames, width, height:
        Shape of a batch.
    seed:
        The n-th batch depends on this and on n alone (and, on a GPU, on its rounding).
    difficulty:
        0 gentle to 1 hard; may be changed at any time, and counts from the next but one batch.
    textures:
        Photographs [N,256,256,3], uint8 or float in [0,1], used besides the procedural textures.
    kinds:
        Kinds of motion to choose from.
    held_out:
        Draw from the held-out worlds, for validation.
    compiled:
        Compile the ray-caster of the GPU; on a CPU it draws tile by tile and is never compiled.

    Raises InputError for arguments out of range.
    """

    def __init__(
        self,
        batch: int,
        frames: int,
        width: int,
        height: int,
        device: str | torch.device = "cpu",
        seed: int = 0,
        difficulty: float = 1.0,
        textures: Tensor | None = None,
        kinds: tuple[str, ...] = KINDS,
        *,
        fps: float = 10.0,
        held_out: bool = False,
        compiled: bool = True,
    ) -> None:
        self.batch, self.frames, self.width, self.height = batch, frames, width, height
        self.device, self.seed, self.fps = torch.device(device), seed, fps
        self.difficulty, self.kinds, self.held_out = difficulty, kinds, held_out
        if textures is None:
            self.photographs, self.textures = 0, _procedural_pyramid(held_out, self.device)
        else:
            self.photographs = len(textures)
            self.textures = _with_photographs(textures, held_out, self.device)
        self._batched = torch.compile(render_batch, dynamic=False) if compiled else render_batch
        self._pool = ThreadPoolExecutor(1, "clip-planner")
        self._count = 0
        self._next: Future[list[Shot]] = self._plan_next()

    def sample(self) -> dict[str, Tensor]:
        """The next batch, on the device.

        ``images`` float32 [B,S,3,H,W] in [0,1], ``depth`` [B,S,H,W] metres, ``poses`` [B,S,4,4]
        camera to world, ``intrinsics`` [B,3,3].
        """
        shots, number = self._next.result(), self._count
        self._next = self._plan_next()
        cameras = [pinhole(self.width, self.height, shot.fov) for shot in shots]
        stamps = np.arange(self.frames) / self.fps
        poses = np.stack([s.path.poses(sample_times(stamps, s.imaging.shutter)) for s in shots])
        intrinsics = self._upload(np.stack([c.intrinsics for c in cameras]))
        pose = self._upload(poses)
        generator = torch.Generator(self.device)
        generator.manual_seed(int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0]))
        with torch.no_grad():
            colour, depth = (self._on_cpu if self.device.type == "cpu" else self._at_once)(
                shots, cameras, pose
            )
            reference = colour[:, 0].mean((1, 2, 3))
            images = expose(colour, [s.imaging for s in shots], reference, 0, generator)
        poses_out = pose[:, :, 0]
        return {"images": images, "depth": depth, "poses": poses_out, "intrinsics": intrinsics}

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        while True:
            yield self.sample()

    def close(self) -> None:
        """Stop planning ahead."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _plan_next(self) -> Future[list[Shot]]:
        self._count += 1
        return self._pool.submit(self._plan, self._count, self.difficulty)

    def _plan(self, number: int, difficulty: float) -> list[Shot]:
        shots = []
        for k in range(self.batch):
            rng = np.random.default_rng([_CLIP, int(self.held_out), self.seed, number, k])
            kind = self.kinds[rng.integers(len(self.kinds))]
            shots.append(plan_shot(rng, self.frames, kind, difficulty, self.fps, self.photographs))
        return shots

    def _at_once(
        self, shots: list[Shot], cameras: list[Camera], poses: Tensor
    ) -> tuple[Tensor, Tensor]:
        rays = self._upload(np.stack([[c.rays(shift) for shift in SHIFTS] for c in cameras]))
        pixel = self._upload(np.array([1.0 / c.intrinsics[0, 0] for c in cameras]))
        scene = Scene.stack([shot.world for shot in shots], self.device)
        colour, depth = self._batched(scene, self.textures, poses, rays.flatten(2, 3), pixel)
        size = (self.height, self.width)
        return colour.unflatten(2, size), depth.unflatten(2, size)

    def _on_cpu(
        self, shots: list[Shot], cameras: list[Camera], poses: Tensor
    ) -> tuple[Tensor, Tensor]:
        scenes = (Scene.stack([shot.world], self.device) for shot in shots)
        frames = [FrameRenderer(s, self.textures, c) for s, c in zip(scenes, cameras)]
        jobs = [(frame, pose) for frame, clip in zip(frames, poses) for pose in clip]
        drawn = list(in_threads(lambda job: job[0](job[1]), jobs))
        colour, depth = (torch.stack([d[i] for d in drawn]).clone() for i in (0, 1))
        size = (self.batch, self.frames)
        return colour.unflatten(0, size), depth.unflatten(0, size)

    def _upload(self, array: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(array).to(self.device, torch.float32)


@lru_cache(maxsize=4)
def _procedural_pyramid(held_out: bool, device: torch.device) -> TexturePyramid:
    return TexturePyramid(torch.tensor(procedural_bank(int(held_out), TEXTURES)), device)


def _with_photographs(photographs: Tensor, held_out: bool, device: torch.device) -> TexturePyramid:
    if photographs.is_floating_point():
        photographs = (photographs * 255).round().clamp(0, 255).to(torch.uint8)
    bank = torch.tensor(procedural_bank(int(held_out), TEXTURES))
    return TexturePyramid(torch.cat([bank, photographs.cpu()]), device)
