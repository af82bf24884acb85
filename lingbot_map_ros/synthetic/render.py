# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Rendering of whole frames: one batch at once on a GPU, tile by tile with culling on a CPU.

Colour is averaged over SAMPLES rays a pixel, spread over the pixel and over the shutter time,
which smooths edges and blurs motion; depth is exact, along the ray through the pixel centre.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .camera import Camera
from .mipmap import TexturePyramid
from .raycast import Scene, cast
from .shading import shade

SAMPLES = 2
# Offset in pixels of each sample; the first entry is the pixel centre, for the depth.
SHIFTS = ((0.0, 0.0), (-0.25, -0.25), (0.25, 0.25))
TILE = 128
WIDENING = 0.03  # metres, and metres per metre of depth

Item = TypeVar("Item")
Result = TypeVar("Result")


def sample_times(stamps: NDArray[np.float64], shutter: float) -> NDArray[np.float64]:
    """Times [F,1+SAMPLES] of the rays of frames at ``stamps`` [F] seconds; the stamp first."""
    spread = (np.arange(SAMPLES) + 0.5) / SAMPLES - 0.5
    return stamps[:, None] + shutter * np.concatenate([np.zeros(1), spread])


def render_batch(
    scene: Scene, textures: TexturePyramid, poses: Tensor, rays: Tensor, pixel: Tensor
) -> tuple[Tensor, Tensor]:
    """Colour [B,F,R,3] and depth [B,F,R].

    ``poses`` [B,F,1+SAMPLES,4,4], ``rays`` [B,1+SAMPLES,R,2], ``pixel`` [B]: one over the focal
    length.
    """
    worlds, samples = rays.shape[:2]
    # The samples become worlds of their own: one cast and one shading, quick to compile.
    poses, rays = poses.transpose(1, 2).flatten(0, 1), rays.flatten(0, 1)
    depth, index = cast(scene.repeat(samples), poses, rays)

    def coloured(x: Tensor) -> Tensor:
        return x.unflatten(0, (worlds, samples))[:, 1:].flatten(0, 1)

    colour = shade(
        scene.repeat(samples - 1),
        textures,
        coloured(poses),
        coloured(rays),
        pixel.repeat_interleave(samples - 1),
        coloured(depth),
        coloured(index),
    )
    colour = colour.unflatten(0, (worlds, samples - 1)).mean(1)
    return colour, depth.unflatten(0, (worlds, samples))[:, 0]


class FrameRenderer:
    """Renders single frames of a world with one camera, tile by tile."""

    def __init__(self, scene: Scene, textures: TexturePyramid, camera: Camera) -> None:
        device = scene.half.device
        self.scene, self.textures = scene, textures
        grid = np.stack([camera.rays(shift) for shift in SHIFTS])
        self.rays = torch.from_numpy(grid).to(device, torch.float32)
        self.pixel = torch.full((1,), 1.0 / camera.intrinsics[0, 0], device=device)
        affine = scene.affine[0].cpu()
        self.edges = torch.linalg.inv(affine[..., :3])
        self.centre = -(self.edges @ affine[..., 3:])[..., 0]

    def __call__(self, poses: Tensor) -> tuple[Tensor, Tensor]:
        """Colour [H,W,3] and depth [H,W] from ``poses`` [1+SAMPLES,4,4]."""
        _, height, width, _ = self.rays.shape
        colour = self.rays.new_empty(height, width, 3)
        depth = self.rays.new_empty(height, width)
        turn = poses[0, :3, :3].cpu()
        centre = (self.centre - poses[0, :3, 3].cpu()) @ turn
        edges = turn.T @ self.edges
        for top in range(0, height, TILE):
            for left in range(0, width, TILE):
                area = (slice(top, top + TILE), slice(left, left + TILE))
                tile = self.rays[:, area[0], area[1]]
                visible = self.scene.keep(_may_see(centre, edges, tile[0].flatten(0, 1).cpu()))
                rays = tile.flatten(1, 2)[None]
                c, d = render_batch(visible, self.textures, poses[None, None], rays, self.pixel)
                colour[area] = c.view(*tile.shape[1:3], 3)
                depth[area] = d.view(tile.shape[1:3])
        return colour, depth


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Map without gradients over a thread a core, in order.

    Each thread computes alone: many small operations split over threads that another process
    pre-empts would wait for each other far longer than they run.
    """

    def call(item: Item) -> Result:
        with torch.inference_mode():
            return function(item)

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(
            os.cpu_count(), "render", initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            yield from pool.map(call, items)
    finally:
        torch.set_num_threads(threads)  # the setting of one thread is the default of later ones


def _may_see(centre: Tensor, edges: Tensor, rays: Tensor) -> Tensor:
    """Whether the frustum about a tile of rays [R,2] may meet each box around a primitive [P].

    ``centre`` [P,3] is the centre, ``edges`` [P,3,3] the half edges as columns, in camera axes;
    the frustum is a little wide, for the camera moves while the shutter is open.
    """
    (left, top), (right, bottom) = rays.amin(0).tolist(), rays.amax(0).tolist()
    sides = [(1, 0, -left), (-1, 0, right), (0, 1, -top), (0, -1, bottom), (0, 0, 1)]
    inward = torch.tensor(sides, dtype=centre.dtype)
    reach = (inward @ edges).abs().sum(-1) + WIDENING
    depth = centre[:, 2:].clamp(min=1.0)
    return ((centre @ inward.T + reach + WIDENING * depth) > 0).all(-1)
