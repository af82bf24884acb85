# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Views that other cameras would have had from the same places, cut out of wide, fine clips.

A camera that turns or zooms about its centre sees the same rays, so the new images are a warp of
the old ones, and poses, focal lengths and depth stay exact.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lingbot_map_ros.geometry.poses import quaternion_to_matrix

from .exact import apply, product
from .store import Clips

NARROWEST, WIDEST = math.radians(45), math.radians(100)
_FINEST = 0.75  # pixels of the source for one of the view, below which it would look blurred
_SQUEEZE = (0.82, 1.15)  # height over width of the pixels, in one clip of five
_SQUEEZED = 0.2
_MOUNT = (4.0, 7.0, 4.0)  # standard deviation in degrees of a fixed turn about x, y, z
_PAN = 8.0  # of a turn about y that grows from the first frame to the last
_SHRUNK = (1.0, 0.75, 0.5, 0.25, 0.0)
_SAME_SURFACE = 1.1  # of neighbouring depths
_ROUNDING = 1e-3  # pixels


class Views(NamedTuple):
    """Cameras inside clips' cameras: ``focal [B, 2]`` (x, y), ``rotation [B, S, 3, 3]``.

    ``rotation`` takes directions of the new camera to the old one.
    """

    focal: Tensor
    rotation: Tensor


def draw_views(clips: Clips, size: tuple[int, int], generator: torch.Generator) -> Views:
    """Draw cameras of ``size`` (height, width) that see nothing beyond the clips' images."""
    batch, frames = clips.poses.shape[:2]
    device = clips.focal.device

    def uniform(low: Tensor | float, high: Tensor | float) -> Tensor:
        return low + (high - low) * torch.rand(batch, generator=generator).to(device)

    height, width = size
    source_height, source_width = clips.depth.shape[-2:]
    half = torch.tensor([source_width, source_height], device=device) / 2
    widest_x, widest_y = (half / clips.focal).unbind(1)
    narrowest = (_FINEST * width / source_width * widest_x).clamp(min=math.tan(NARROWEST / 2))
    squeezed = torch.rand(batch, generator=generator).to(device) < _SQUEEZED
    pixel = torch.where(squeezed, uniform(*_SQUEEZE), 1.0) * height / width
    # Half the image's size in the plane at distance one; within the source to all sides.
    widest = torch.minimum(widest_x, widest_y / pixel).clamp(max=math.tan(WIDEST / 2))
    half_x = torch.minimum(uniform(narrowest, torch.maximum(narrowest, widest)), widest)
    half_y = half_x * pixel
    mount = torch.randn((batch, 1, 3), generator=generator) * torch.tensor(_MOUNT)
    pan = torch.randn((batch, 1), generator=generator) * _PAN * torch.linspace(-0.5, 0.5, frames)
    half_turns = mount.repeat(1, frames, 1)
    half_turns[..., 1] += pan
    half_turns = half_turns.to(device) * math.pi / 360
    corners = torch.stack(
        [torch.stack((a * half_x, b * half_y, torch.ones_like(half_x)), -1) for a, b in _SIGNS], 1
    )
    limits = torch.stack((widest_x, widest_y), -1)[:, None, None]
    rotation = torch.eye(3, device=device).expand(batch, frames, 3, 3)
    for share in reversed(_SHRUNK):
        # Turned as far as the source's image reaches.
        candidate = quaternion_to_matrix(F.pad(share * half_turns, (0, 1), value=1.0))
        rays = apply(candidate[:, :, None], corners[:, None])
        inside = (rays[..., 2] > 0.1) & (rays[..., :2].abs() <= rays[..., 2:] * limits).all(-1)
        fits = inside.all(dim=(1, 2))
        rotation = torch.where(fits[:, None, None, None], candidate, rotation)
    focal = torch.tensor([width, height], device=device) / 2 / torch.stack((half_x, half_y), -1)
    return Views(focal, rotation)


_SIGNS = ((-1, -1), (-1, 1), (1, -1), (1, 1))


def look(clips: Clips, views: Views, size: tuple[int, int]) -> Clips:
    """Render the clips as ``views`` of ``size`` (height, width).

    Colours are interpolated. So is the inverse depth, which is exact on planes; where neighbours
    lie on different surfaces the nearest one's is taken. Next to unknown depth it is unknown.
    """
    batch, frames = clips.poses.shape[:2]
    device = clips.depth.device
    height, width = size
    source_height, source_width = clips.depth.shape[-2:]
    v, u = torch.meshgrid(
        torch.arange(height, device=device), torch.arange(width, device=device), indexing="ij"
    )
    middle = torch.tensor([width / 2, height / 2], device=device)
    plane = (torch.stack((u, v), -1) - middle) / views.focal[:, None, None]
    rays = F.pad(plane, (0, 1), value=1.0)
    seen = apply(views.rotation[:, :, None, None], rays[:, None])
    source_middle = torch.tensor([source_width / 2, source_height / 2], device=device)
    at = seen[..., :2] / seen[..., 2:] * clips.focal[:, None, None, None] + source_middle
    last = torch.tensor([source_width - 1, source_height - 1], device=device)
    grid = 2 * at / last - 1
    images = F.grid_sample(
        clips.images.flatten(0, 1),
        grid.flatten(0, 1),
        mode="bilinear",
        padding_mode="border",
        align_corners=True,
    )
    within = torch.minimum(at.clamp(min=0), last)
    depth = _depth_at(clips.depth, within) / seen[..., 2]
    # Beyond the centre of a border pixel its colour goes on, and nothing is known.
    depth = torch.where((at - within).abs().amax(-1) < _ROUNDING, depth, 0)
    poses = clips.poses.clone()
    poses[..., :3, :3] = product(clips.poses[..., :3, :3], views.rotation)
    return Clips(images.unflatten(0, (batch, frames)), depth, poses, views.focal)


def _depth_at(depth: Tensor, at: Tensor) -> Tensor:
    """Depth ``[B, S, h, w]`` at pixels ``at [B, S, h, w, 2]`` (x, y) of ``depth [B, S, H, W]``."""
    rows, columns = depth.shape[-2:]
    x, y = at.unbind(-1)
    left, top = x.long().clamp(max=columns - 2), y.long().clamp(max=rows - 2)
    flat = depth.flatten(2)
    corners = torch.stack(
        [
            flat.gather(2, ((top + j) * columns + left + i).flatten(2)).view_as(x)
            for j in (0, 1)
            for i in (0, 1)
        ]
    )
    right, bottom = x - left, y - top
    weights = torch.stack(
        ((1 - right) * (1 - bottom), right * (1 - bottom), (1 - right) * bottom, right * bottom)
    )
    least = corners.amin(0)
    smooth = 1 / (weights / corners.clamp(min=1e-6)).sum(0)
    nearest = corners.gather(0, weights.argmax(0, keepdim=True))[0]
    surface = torch.where(corners.amax(0) < _SAME_SURFACE * least, smooth, nearest)
    return torch.where(least > 0, surface, 0)
