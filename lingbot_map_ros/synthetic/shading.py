# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Colour of the surfaces that rays hit: three texture layers under a few lamps."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from . import world as w
from .mipmap import TexturePyramid
from .raycast import Scene
from .textures import SIZE

GAMMA = 2.2
LAMP_REACH = 3.0  # metres at which a lamp has half its strength
WRAP = 0.25  # how far light creeps round an edge, in place of bounced light


def shade(
    scene: Scene,
    textures: TexturePyramid,
    poses: Tensor,
    rays: Tensor,
    pixel: Tensor,
    depth: Tensor,
    index: Tensor,
) -> Tensor:
    """Colour [B,F,R,3] in display values, about [0,1], where ``cast`` hit.

    ``pixel`` [B] is the size of a pixel at depth 1 (one over the focal length); the other
    arguments are those and the results of ``cast``.
    """
    nb, nc, ns = scene.counts
    rotation, eye = poses[:, :, None, :3, :3], poses[:, :, None, :3, 3]
    u, v = rays[:, None, :, None, 0], rays[:, None, :, None, 1]
    ray = rotation[..., 0] * u + rotation[..., 1] * v + rotation[..., 2]
    point = eye + depth[..., None] * ray

    row = index + _first_row(scene.affine.shape[:2], index)
    shape = torch.cat([scene.affine.flatten(2), scene.half], -1)
    shape = _rows(shape, row)
    axes = shape[..., :12].unflatten(-1, (3, 4))
    unit = (axes[..., :3] * point[..., None, :]).sum(-1) + axes[..., 3]

    flat = (index < nb) | (index == nb + nc + ns)
    round_ = ~flat & (index < nb + nc)
    cap = unit[..., 2].abs() > 0.9999
    ax, ay, az = unit.abs().unbind(-1)
    az = torch.where(round_, torch.where(cap, 2.0, 0.0), az)
    on_z = (az >= ax) & (az >= ay)
    on_x = ~on_z & (ax >= ay)
    on_y = ~on_z & ~on_x

    # Normal in unit coordinates, then in the world: rows of the affine map are the dual axes.
    x, y, z = unit.unbind(-1)
    x = torch.where(flat, on_x * x, torch.where(round_ & cap, 0.0, x))
    y = torch.where(flat, on_y * y, torch.where(round_ & cap, 0.0, y))
    z = torch.where(flat | round_, on_z * z, z)
    normal = x[..., None] * axes[..., 0, :3] + y[..., None] * axes[..., 1, :3]
    normal = _unit(normal + z[..., None] * axes[..., 2, :3])
    facing = (normal * ray).sum(-1, keepdim=True)
    normal = torch.where(facing > 0, -normal, normal)
    length = ray.square().sum(-1).sqrt()
    slant = (facing[..., 0].abs() / length).clamp(min=0.04)

    face = torch.where(on_z, torch.where(unit[..., 2] > 0, 1, 2), 0)
    look = _rows(scene.surfaces.flatten(1, 2), (row * w.FACES + face).to(torch.int32))
    mx, my, mz = (unit * shape[..., 12:] + look[..., w.OFFSET]).unbind(-1)
    right = torch.where(on_x, my, mx)
    down = torch.where(on_z, my, -mz)

    # A slanted pixel covers a long strip; the geometric mean of its sides keeps floors crisp.
    spread = pixel[:, None, None] * depth * length / slant.sqrt()

    def level(frequency: Tensor) -> Tensor:
        return (spread * frequency * SIZE).log2()

    f = look[..., w.BASE_FREQUENCY]
    base = textures.colour(look[..., w.BASE].int(), right * f, down * f, level(f))
    f = look[..., w.DETAIL_FREQUENCY]
    detail = textures.brightness(look[..., w.DETAIL].int(), right * f, down * f, level(f))
    f = look[..., w.MACRO_FREQUENCY]
    macro = textures.brightness(look[..., w.MACRO].int(), right * f, down * f, level(f))
    layers = 1.0 + look[..., w.DETAIL_CONTRAST] * (detail / 128.0 - 1.0)
    layers = layers * (1.0 + look[..., w.MACRO_CONTRAST] * (macro / 128.0 - 1.0))
    light = _light(scene, point, normal) * (layers[..., None] / 255.0) * look[..., w.TINT]
    return torch.stack(base, -1) * light


def _light(scene: Scene, point: Tensor, normal: Tensor) -> Tensor:
    """Light on a surface in display values [B,F,R,3]."""
    sky = 0.75 + 0.25 * normal[..., 2:]
    total = scene.ambient[:, None, None] * sky
    for lamp in scene.lights.unbind(1):
        way = lamp[:, None, None, :3] - point
        distance2 = way.square().sum(-1, keepdim=True)
        cosine = (way * normal).sum(-1, keepdim=True) * distance2.rsqrt()
        cosine = ((cosine + WRAP) / (1 + WRAP)).clamp(min=0.0)
        total = total + cosine / (1 + distance2 / LAMP_REACH**2) * lamp[:, None, None, 3:]
    return total.clamp(min=1e-4).pow(1 / GAMMA)


def _unit(vector: Tensor) -> Tensor:
    return vector * vector.square().sum(-1, keepdim=True).clamp(min=1e-20).rsqrt()


def _first_row(shape: torch.Size, index: Tensor) -> Tensor:
    worlds = torch.arange(shape[0], device=index.device, dtype=torch.int32)
    return (worlds * math.prod(shape[1:]))[:, None, None]


def _rows(table: Tensor, row: Tensor) -> Tensor:
    """Rows [...,C] of a table [B,N,C] by flat index."""
    flat = table.flatten(0, 1).index_select(0, row.reshape(-1))
    return flat.view(*row.shape, table.shape[-1])
