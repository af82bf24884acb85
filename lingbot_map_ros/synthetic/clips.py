# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Endless batches of short random clips of synthetic worlds, made for training on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .camera import Camera, pinhole
from .imaging import expose
from .mipmap import TexturePyramid
from .raycast import Scene
from .render import SHIFTS, FrameRenderer, in_threads, render_batch, sample_times
from .sequence import TEXTURES, Shot, plan_shot, procedural_pyramid
from .textures import procedural_bank
from .trajectory import KINDS

_STREAM = 2  # of random numbers, apart from that of the sequences


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
            self.photographs, self.textures = 0, procedural_pyramid(held_out, self.device)
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
            rng = np.random.default_rng([_STREAM, int(self.held_out), self.seed, number, k])
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


def _with_photographs(photographs: Tensor, held_out: bool, device: torch.device) -> TexturePyramid:
    if photographs.is_floating_point():
        photographs = (photographs * 255).round().clamp(0, 255).to(torch.uint8)
    bank = torch.tensor(procedural_bank(int(held_out), TEXTURES))
    return TexturePyramid(torch.cat([bank, photographs.cpu()]), device)
