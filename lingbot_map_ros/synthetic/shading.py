# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Colour of the surfaces that rays hit: three texture layers under a few lamps."""

from __future__ import annotations

from collections.abc import Sequence

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
    u, v = rays[:, None, :, 0], rays[:, None, :, 1]
    turn, eye = poses[:, :, None, :3, :3], poses[:, :, None, :3, 3]
    ray = [turn[..., i, 0] * u + (turn[..., i, 1] * v + turn[..., i, 2]) for i in range(3)]
    point = [eye[..., i] + depth * ray[i] for i in range(3)]

    worlds = torch.arange(len(scene.half), device=index.device, dtype=torch.int32)
    row = index + (scene.half.shape[1] * worlds)[:, None, None]
    shape = _columns(torch.cat([scene.affine.flatten(2), scene.half], -1), row)
    axes = [shape[4 * i : 4 * i + 3] for i in range(3)]
    unit = [_dot(axes[i], point) + shape[4 * i + 3] for i in range(3)]

    flat = (index < nb) | (index == nb + nc + ns)
    tube = ~flat & (index < nb + nc)
    cap = tube & (unit[2].abs() > 0.9999)
    ax, ay, az = (c.abs() for c in unit)
    az = torch.where(tube, torch.where(cap, 2.0, 0.0), az)
    on_z = (az >= ax) & (az >= ay)
    on_x = ~on_z & (ax >= ay)
    on_y = ~on_z & ~on_x

    # The normal in unit coordinates, then in the world: rows of the affine map are the dual axes.
    side = [
        torch.where(flat, on_x * unit[0], torch.where(cap, 0.0, unit[0])),
        torch.where(flat, on_y * unit[1], torch.where(cap, 0.0, unit[1])),
        torch.where(flat | tube, on_z * unit[2], unit[2]),
    ]
    normal = [sum(side[j] * axes[j][i] for j in range(3)) for i in range(3)]
    facing = _dot(normal, ray)  # type: ignore[arg-type]
    away = -torch.sign(facing) * _dot(normal, normal).clamp(min=1e-20).rsqrt()  # type: ignore
    normal = [c * away for c in normal]
    length = _dot(ray, ray).sqrt()
    slant = ((facing * away).abs() / length).clamp(min=0.04)

    face = torch.where(on_z, torch.where(unit[2] > 0, 1, 2), 0).to(torch.int32)
    look = _columns(scene.surfaces.flatten(1, 2), row * w.FACES + face)
    mx, my, mz = (unit[i] * shape[12 + i] + look[w.OFFSET.start + i] for i in range(3))
    right = torch.where(on_x, my, mx)
    down = torch.where(on_z, my, -mz)

    # A slanted pixel covers a long strip; the geometric mean of its sides keeps floors crisp.
    level = (pixel[:, None, None] * depth * length * slant.rsqrt() * SIZE).log2()

    def layer(which: int, frequency: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        tiles = look[frequency]
        return look[which].int(), right * tiles, down * tiles, level + tiles.log2()

    base = textures.colour(*layer(w.BASE, w.BASE_FREQUENCY))
    detail = textures.brightness(*layer(w.DETAIL, w.DETAIL_FREQUENCY))
    macro = textures.brightness(*layer(w.MACRO, w.MACRO_FREQUENCY))
    layers = 1.0 + look[w.DETAIL_CONTRAST] * (detail / 128.0 - 1.0)
    layers = layers * (1.0 + look[w.MACRO_CONTRAST] * (macro / 128.0 - 1.0)) / 255.0
    light = _light(scene, point, normal)  # type: ignore[arg-type]
    return torch.stack([base[i] * light[i] * layers * look[w.TINT.start + i] for i in range(3)], -1)


def _light(scene: Scene, point: list[Tensor], normal: list[Tensor]) -> list[Tensor]:
    """Light on a surface, in display values for each colour."""
    ambient = scene.ambient[:, None, None]
    sky = 0.75 + 0.25 * normal[2]
    total = [ambient[..., i] * sky for i in range(3)]
    for lamp in scene.lights[:, :, None, None].unbind(1):
        way = [lamp[..., i] - point[i] for i in range(3)]
        distance2 = _dot(way, way)
        cosine = _dot(way, normal) * distance2.rsqrt()
        falloff = (cosine + WRAP).clamp(min=0.0) / (1 + distance2 / LAMP_REACH**2)
        total = [total[i] + falloff * (lamp[..., 3 + i] / (1 + WRAP)) for i in range(3)]
    return [c.clamp(min=1e-4).pow(1 / GAMMA) for c in total]


def _dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _columns(table: Tensor, row: Tensor) -> Sequence[Tensor]:
    """The columns [...] of the rows [...] of a table [B,N,C], by flat index."""
    columns = table.flatten(0, 1).T.contiguous()
    return columns.index_select(1, row.reshape(-1)).view(-1, *row.shape).unbind(0)
