# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Tracks through procedural rooms and clouds: planned by worker processes, rendered on the GPU."""

import math
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import torch
from torch import Tensor

from lingbot_map_ros.synthetic.imaging import expose
from lingbot_map_ros.synthetic.mipmap import TexturePyramid
from lingbot_map_ros.synthetic.raycast import Scene, cast
from lingbot_map_ros.synthetic.render import SAMPLES, SHIFTS, sample_times
from lingbot_map_ros.synthetic.sequence import KINDS, TEXTURES, Shot, plan_shot
from lingbot_map_ros.synthetic.shading import shade
from lingbot_map_ros.synthetic.textures import procedural_bank

from .clouds import plan_cloud

FPS = 10.0
# Some walks are photographed now and then: up to three times as far from image to image.
_SLOWEST_FPS, _SLOW = 3.0, 0.4
TRAINING, VALIDATION = 0, 2  # banks of textures; 1 is that of the held-out sequences
_STREAM = 3  # of random numbers, apart from the sequences' and the sampler's
_ASPECTS = (1.25, 1.85)
_SQUEEZED = 0.2  # share of tracks whose pixels are not square: images are usually cropped
_EASIEST = 0.5
_FOV = (math.radians(45), math.radians(100))


@dataclass(frozen=True)
class PlannedTrack:
    """A shot, its images a second, and the focal lengths (x, y) at the network's image size."""

    shot: Shot
    fps: float
    focal: tuple[float, float]


def plan_track(
    seed: tuple[int, ...],
    frames: int,
    size: tuple[int, int],
    difficulty: float,
    photographs: int,
    clouds: float = 0.0,
) -> PlannedTrack:
    """Plan one track, with a probability of ``clouds`` through a cloud instead of a room.

    The same arguments give the same track.
    """
    rng = np.random.default_rng([_STREAM, *seed])
    kind = KINDS[rng.integers(len(KINDS))]
    slow = rng.random() < _SLOW
    fps = float(np.exp(rng.uniform(np.log(_SLOWEST_FPS), np.log(FPS)))) if slow else FPS
    if rng.random() < clouds:
        shot = plan_cloud(rng, frames, difficulty, fps, photographs)
    else:
        shot = plan_shot(rng, frames, kind, difficulty, fps, photographs)
    height, width = size
    slope = math.tan(rng.uniform(*_FOV) / 2)
    squeezed = rng.random() < _SQUEEZED
    aspect = rng.uniform(*_ASPECTS) if squeezed else width / height
    return PlannedTrack(shot, fps, (width / 2 / slope, height / 2 * aspect / slope))


def _single_threaded() -> None:
    torch.set_num_threads(1)


class RoomTracks:
    """An endless supply of room tracks of ``frames`` frames.

    Worker processes plan ahead; make it before CUDA is initialised, for they are forked.
    ``difficulty``, and ``clouds``, the share of tracks that lead through clouds instead of rooms,
    may be changed at any time. The worlds and textures of the ``bank`` VALIDATION
    are neither those of TRAINING nor those of the held-out sequences of ``evaluate_small.py``.
    """

    def __init__(
        self,
        frames: int,
        size: tuple[int, int],
        seed: int,
        *,
        photographs: int,
        workers: int,
        bank: int = TRAINING,
        clouds: float = 0.0,
        difficulty: float = 0.3,
    ) -> None:
        self.frames, self.size, self.seed = frames, size, seed
        self.bank, self.photographs = bank, photographs
        self.difficulty, self.clouds = difficulty, clouds
        self._rng = np.random.default_rng([seed, bank])
        self._pool = ProcessPoolExecutor(workers, get_context("fork"), _single_threaded)
        self._planned: deque[Future[PlannedTrack]] = deque()
        self._ahead = 3 * workers
        self._count = 0
        self.rendered = 0
        self._textures: TexturePyramid | None = None
        self._cast, self._shade = cast, shade
        self._refill()

    def open(self, device: torch.device, textures: Tensor | None, *, compiled: bool) -> None:
        """Put the procedural textures and photographs ``[N, 256, 256, 3]`` on ``device``."""
        bank = torch.tensor(procedural_bank(self.bank, TEXTURES))
        if textures is not None:
            bank = torch.cat((bank, textures))
        self._textures = TexturePyramid(bank, device)
        self._device = device
        if compiled:
            # Apart, because each is called several times a frame but compiled once.
            self._cast = torch.compile(cast, dynamic=False)
            self._shade = torch.compile(shade, dynamic=False)

    def _refill(self) -> None:
        while len(self._planned) < self._ahead:
            # Gentle and hard tracks at all times, harder ones as training goes on.
            difficulty = float(self._rng.uniform(_EASIEST, 1.0) * self.difficulty)
            seed = (self.bank, self.seed, self._count)
            drawn = (difficulty, self.photographs, self.clouds)
            self._planned.append(
                self._pool.submit(plan_track, seed, self.frames, self.size, *drawn)
            )
            self._count += 1

    def ready(self) -> bool:
        """Whether the next track is planned, so that ``render`` need not wait."""
        return self._planned[0].done()

    @torch.no_grad()
    def render(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Render the next track, as ``TrackStore.add`` takes it."""
        if self._textures is None:
            raise RuntimeError("open() comes before render()")
        track = self._planned.popleft().result()
        self.rendered += 1
        self._refill()
        device, (height, width) = self._device, self.size
        shot = track.shot
        stamps = np.arange(self.frames) / track.fps
        poses = shot.path.poses(sample_times(stamps, shot.imaging.shutter))
        fx, fy = track.focal

        def upload(array: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device, torch.float32)

        scene = Scene.stack([shot.world], device)
        v, u = torch.meshgrid(
            torch.arange(height, device=device), torch.arange(width, device=device), indexing="ij"
        )
        pixel = torch.full((1,), 1 / min(fx, fy), device=device)
        pose = upload(poses)
        depth, colour = None, 0.0
        for k, (shift_x, shift_y) in enumerate(SHIFTS):
            x, y = (u + shift_x - width / 2) / fx, (v + shift_y - height / 2) / fy
            rays = torch.stack((x, y), dim=-1).flatten(0, 1)[None]
            at = pose[None, :, k].contiguous()
            hit = self._cast(scene, at, rays)
            if k == 0:
                depth = hit[0]
            else:
                colour = colour + self._shade(scene, self._textures, at, rays, pixel, *hit)
        colour = (colour / SAMPLES).unflatten(2, (height, width))
        generator = torch.Generator(device).manual_seed(self._count)
        reference = colour[:, 0].mean((1, 2, 3))
        images = expose(colour, [shot.imaging], reference, 0, generator)[0]
        images = (images * 255).round().to(torch.uint8)
        focal = torch.tensor([fx, fy], device=device)
        return images, depth[0].unflatten(1, (height, width)), pose[:, 0], focal

    def close(self) -> None:
        """End the worker processes."""
        self._pool.shutdown(wait=False, cancel_futures=True)
