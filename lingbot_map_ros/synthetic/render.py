# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Rendering of whole frames: one batch at once on a GPU, tile by tile with culling on a CPU.

Colour is averaged over SAMPLES rays a pixel, spread over the pixel and over the shutter time,
which smooths edges and blurs motion; depth is exact, along the ray through the pixel centre.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import world as w
from .camera import Camera
from .mipmap import TexturePyramid
from .raycast import Scene, cast
from .shading import shade

SAMPLES = 2
# Offset in pixels of each sample; the first entry is the pixel centre, for the depth.
SHIFTS = ((0.0, 0.0), (-0.25, -0.25), (0.25, 0.25))
TILE = 160

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
    depth, _ = cast(scene, poses[:, :, 0], rays[:, 0])
    colour = torch.zeros(*depth.shape, 3, device=depth.device)
    for k in range(1, 1 + SAMPLES):
        pose, ray = poses[:, :, k], rays[:, k]
        colour = colour + shade(scene, textures, pose, ray, pixel, *cast(scene, pose, ray))
    return colour / SAMPLES, depth


class FrameRenderer:
    """Renders single frames of a world with one camera, tile by tile."""

    def __init__(self, scene: Scene, textures: TexturePyramid, camera: Camera) -> None:
        device = scene.half.device
        self.scene, self.textures = scene, textures
        grid = np.stack([camera.rays(shift) for shift in SHIFTS])
        self.rays = torch.from_numpy(grid).to(device, torch.float32)
        self.pixel = torch.full((1,), 1.0 / camera.intrinsics[0, 0], device=device)

    def __call__(self, poses: Tensor) -> tuple[Tensor, Tensor]:
        """Colour [H,W,3] and depth [H,W] from ``poses`` [1+SAMPLES,4,4]."""
        _, height, width, _ = self.rays.shape
        colour = self.rays.new_empty(height, width, 3)
        depth = self.rays.new_empty(height, width)
        bounds = _bounding_spheres(self.scene, poses[0])
        for top in range(0, height, TILE):
            for left in range(0, width, TILE):
                area = (slice(top, top + TILE), slice(left, left + TILE))
                tile = self.rays[:, area[0], area[1]]
                visible = self.scene.keep(_may_see(bounds, tile[0].reshape(-1, 2)))
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


def _bounding_spheres(scene: Scene, pose: Tensor) -> Tensor:
    """Centres in the camera's axes and radii of the primitives' bounding spheres [P,4]."""
    half = scene.half[0].double()
    affine = scene.affine[0].double()
    centre = -torch.linalg.solve(affine[..., :3], affine[..., 3:])[..., 0]
    nb, nc, ns = scene.counts
    radius = half.norm(dim=-1)
    radius[nb : nb + nc] = half[nb : nb + nc, 1:].norm(dim=-1)
    radius[nb + nc : nb + nc + ns] = half[nb + nc : nb + nc + ns, 0]
    turn = pose.double()
    local = (centre - turn[:3, 3]) @ turn[:3, :3]
    return torch.cat([local, radius[:, None]], -1)


def _may_see(bounds: Tensor, rays: Tensor) -> Tensor:
    """Whether the cone about a tile of rays [R,2] touches each bounding sphere; the shell always.

    The cone is a little wider than the tile: the camera moves while the shutter is open.
    """
    direction = torch.cat([rays, torch.ones_like(rays[:, :1])], -1).double()
    direction = direction / direction.norm(dim=-1, keepdim=True)
    axis = direction.mean(0)
    axis = axis / axis.norm()
    opening = (direction @ axis).min().clamp(-1, 1).acos() + math.radians(2.0)
    distance = bounds[:, :3].norm(dim=-1)
    radius = bounds[:, 3] + 0.03
    angle = (bounds[:, :3] @ axis / distance).clamp(-1, 1).acos()
    reach = (radius / distance).clamp(max=1.0).asin()
    seen = (angle - reach < opening) | (distance <= radius)
    seen[w.PRIMITIVES - 1] = True
    return seen
