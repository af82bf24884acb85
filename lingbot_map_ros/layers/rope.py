# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Rotary position embeddings: 2D (row, column) and 3D (time, row, column).

Angles are computed in float64 for the positions at hand, so there is no table that a large image
could run out of, and are cast to float32 once for all blocks of a call.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class RotaryTable(NamedTuple):
    """Cosines and sines ``[..., 1, N, head_dim]``; broadcast over heads.

    ``interleaved`` pairs features (2m, 2m+1); otherwise feature j pairs with j + head_dim/4 within
    each half of the head.
    """

    cos: Tensor
    sin: Tensor
    interleaved: bool


def rotate(x: Tensor, table: RotaryTable) -> Tensor:
    """Rotate the feature pairs of ``x [B, heads, N, head_dim]`` in float32."""
    if table.interleaved:
        even, odd = x[..., 0::2], x[..., 1::2]
        partner = torch.stack((-odd, even), dim=-1).flatten(-2)
    else:
        first, second = x.unflatten(-1, (2, 2, -1)).unbind(-2)
        partner = torch.stack((-second, first), dim=-2).flatten(-3)
    return x * table.cos + partner * table.sin


def rope_2d(positions: Tensor, head_dim: int, base: float = 100.0) -> RotaryTable:
    """Table for ``positions [..., N, 2]`` (row, column): half of the head turns with each."""
    half = head_dim // 2
    exponent = torch.arange(0, half, 2, dtype=torch.float64, device=positions.device) / half
    angles = positions.double().unsqueeze(-1) * base**-exponent  # [..., N, 2, half/2]
    angles = torch.cat((angles, angles), dim=-1).flatten(-2)  # [..., N, head_dim]
    return _table(angles, interleaved=False)


def rope_3d(positions: Tensor, split: tuple[int, int, int], theta: float = 10000.0) -> RotaryTable:
    """Table for ``positions [..., N, 3]`` (time, row, column); ``split``: features of each axis."""
    parts = []
    for axis, features in enumerate(split):
        exponent = torch.arange(0, features, 2, dtype=torch.float64, device=positions.device)
        frequencies = theta ** -(exponent / features)
        parts.append(positions[..., axis, None].double() * frequencies)
    angles = torch.cat(parts, dim=-1).repeat_interleave(2, dim=-1)
    return _table(angles, interleaved=True)


def time_rows(times: int, features: int, device: torch.device, theta: float = 10000.0) -> Tensor:
    """Time parts ``[2, times, features]``, cosines and sines, of ``rope_3d`` tables."""
    positions = torch.zeros(times, 3)
    positions[:, 0] = torch.arange(times)
    table = rope_3d(positions, (features, 0, 0), theta)
    return torch.stack((table.cos[0], table.sin[0])).to(device)


def set_time(table: RotaryTable, rows: Tensor, time: int) -> None:
    """Rewrite the time part of a ``rope_3d`` table of one frame in place, from ``time_rows``."""
    features = rows.shape[-1]
    table.cos[..., :features] = rows[0, time]
    table.sin[..., :features] = rows[1, time]


def _table(angles: Tensor, *, interleaved: bool) -> RotaryTable:
    angles = angles.unsqueeze(-3)
    return RotaryTable(angles.cos().float(), angles.sin().float(), interleaved)


def split_3d(head_dim: int) -> tuple[int, int, int]:
    """Features for (time, row, column): 20/22/22 of 64 and 40/44/44 of 128, in proportion else."""
    spatial = round(head_dim * 22 / 64 / 2) * 2
    return head_dim - 2 * spatial, spatial, spatial


def grid_positions(grid: tuple[int, int], num_special: int, device: torch.device) -> Tensor:
    """2D positions ``[num_special + rows*columns, 2]``: (0, 0) for specials, from 1 for patches."""
    rows, columns = torch.meshgrid(
        torch.arange(1, grid[0] + 1, device=device),
        torch.arange(1, grid[1] + 1, device=device),
        indexing="ij",
    )
    patches = torch.stack((rows, columns), dim=-1).flatten(0, 1)
    return torch.cat((patches.new_zeros(num_special, 2), patches))


def spacetime_positions(
    grid: tuple[int, int], num_special: int, times: Tensor, device: torch.device
) -> Tensor:
    """3D positions ``[frames * (num_special + rows*columns), 3]`` for frames at ``times [frames]``.

    Special token k sits at (t, k, k), a patch at (t, num_special + row, num_special + column).
    """
    special = torch.arange(num_special, device=device)[:, None].expand(-1, 2)
    patches = grid_positions(grid, 0, device) + (num_special - 1)
    space = torch.cat((special, patches))
    frames = times.shape[0]
    time = times.to(device)[:, None, None].expand(frames, space.shape[0], 1)
    return torch.cat((time, space.expand(frames, -1, -1)), dim=-1).flatten(0, 1)
