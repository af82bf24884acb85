# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Small blocks of one thumbnail, looked for in another: where they are said to be, or shifted.

Nothing here waits for a GPU: besides questions to tensors that excludes numbers in ``torch.where``,
which may be uploaded, and medians over no axis.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from lingbot_map_ros.geometry.projection import MIN_DEPTH

BLOCK = 10
"""Side of a block in pixels of the thumbnails."""
MIN_BLOCKS = 10
"""Blocks with texture, seen by both frames, that a judgement needs."""
MIN_OVERLAP = 0.6
"""Share of a block that the other frame must see."""
MIN_CONTRAST = 2.0
"""Grey levels (standard deviation) of a block with texture."""
PLAIN = 0.1
"""Grey levels (standard deviation) that both blocks must exceed to agree: less may be rounding."""
MATCH = 0.5
"""Correlation of a block that agrees; one in thirty blocks of unrelated images reaches it."""
SHIFTS = [(x, y) for y in range(-4, 5, 2) for x in range(-8, 9, 2) if (x, y) != (0, 0)]
"""Columns and rows of the thumbnail: up to a ninth of its width, for errors of the pose."""
CLEAR = 0.5
"""Share of agreeing blocks that needs no shift."""
LIKELY = 3
"""Of these so many are tried on all pixels, after a look at every other one."""


class Places(NamedTuple):
    """Where a thumbnail's pixels lie in the other's frame, each ``[h, w]`` or ``[S, h, w]``."""

    u: Tensor
    """Columns of the other's thumbnail."""
    v: Tensor
    """Rows."""
    z: Tensor
    """Depth."""

    def shifted(self, shifts: Tensor) -> Places:
        """Return the places with each of the shifts ``[S, 2]``."""
        u, v = (x + shifts[:, i, None, None] for i, x in enumerate(self[:2]))
        return Places(u, v, self.z)

    def sample(self, other: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is nearest there in another thumbnail, and where that is in view."""
        height, width = other.shape
        column, row = self.u.round(), self.v.round()
        visible = (self.z > MIN_DEPTH) & (column >= 0) & (column < width)
        visible = visible & (row >= 0) & (row < height)
        return other.take((row * width + column).masked_fill(~visible, 0).long()), visible

    def interpolate(self, other: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is there in another thumbnail, for ``[S, h, w]``, and where it is in view."""
        (u, v, z), (height, width) = self, other.shape
        visible = (z > MIN_DEPTH) & (u >= 0) & (u <= width - 1) & (v >= 0) & (v <= height - 1)
        # For grid_sample -1 and 1 are the centres of the outer pixels.
        grid = torch.stack((2 * u / (width - 1) - 1, 2 * v / (height - 1) - 1), -1)
        grid = grid.masked_fill(~visible[..., None], 0)
        images = other.expand(len(u), 1, height, width)
        # All is in view; with another padding a GPU would call cuDNN, unlike the CPU.
        sampled = grid_sample(images, grid, padding_mode="border", align_corners=True)
        return sampled[:, 0], visible


class Found(NamedTuple):
    """How many of the blocks find themselves in the other thumbnail, and which."""

    share: Tensor
    """Of the usable blocks, those that have texture and are seen by both; a scalar."""
    enough: Tensor
    """Whether there are `MIN_BLOCKS` of those; a scalar."""
    shift: Tensor
    """``[2]`` that this is with."""
    pixels: Tensor
    """bool ``[N, P]``: those of blocks that agree, where the other frame sees them."""


class _Tries(NamedTuple):
    """Blocks N of P pixels with each of S shifts."""

    shifts: Tensor
    """``[S, 2]``"""
    agreeing: Tensor
    """bool ``[S, N]``"""
    usable: Tensor
    """bool ``[S, N]``"""
    visible: Tensor
    """bool ``[S, N, P]``"""

    def share(self) -> Tensor:
        """Share of the usable blocks ``[S]`` that agree; 0 where they are too few."""
        count = self.usable.sum(-1)
        return self.agreeing.sum(-1) / count.clip(1) * (count >= MIN_BLOCKS)


class _Constants(NamedTuple):
    shifts: Tensor
    """`SHIFTS` ``[S, 2]``."""
    no_shift: Tensor
    """``[1, 2]``"""


@cache
def _constants(device: torch.device) -> _Constants:
    # Kept, for the host would wait for each upload.
    return _Constants(
        torch.tensor(SHIFTS, dtype=torch.float32, device=device),
        torch.zeros((1, 2), device=device),
    )


def find(image: Tensor, other: Tensor, places: Places) -> Found | None:
    """Look for the blocks of an image in another, each ``[h, w]``, where ``places`` says.

    Where too few agree all are shifted alike. None if the image has less than `MIN_BLOCKS`.
    """
    blocks = cut(image)
    if len(blocks) < MIN_BLOCKS:
        return None
    shifts = _constants(image.device).no_shift
    searches = not _answers_at_once(image.device)
    if not searches:
        tries = _match(blocks, other, places, shifts)
        searches = bool(tries.share()[0] < CLEAR)
    if searches:
        shifts = torch.cat((shifts, _likely_shifts(image, other, places)))
        tries = _match(blocks, other, places, shifts)
    share = tries.share()
    best = _in_order(share)[:1].masked_fill(share[0] >= CLEAR, 0)
    return Found(
        share=share[best][0],
        enough=tries.usable[0].sum() >= MIN_BLOCKS,
        shift=tries.shifts[best][0],
        pixels=tries.agreeing[best][0][:, None] & tries.visible[best][0],
    )


def cut(image: Tensor, side: int = BLOCK) -> Tensor:
    """Cut ``[..., H, W]`` into blocks ``[..., N, P]``; what is left at the right and below goes."""
    rows, columns = (length // side for length in image.shape[-2:])
    whole = image[..., : rows * side, : columns * side]
    blocks = whole.unflatten(-1, (columns, side)).unflatten(-3, (rows, side)).transpose(-3, -2)
    return blocks.flatten(-4, -3).flatten(-2)


def _answers_at_once(device: torch.device) -> bool:
    """Whether a question to the device costs no waiting for all that it has to do before."""
    return device.type == "cpu"


def _match(blocks: Tensor, other: Tensor, places: Places, shifts: Tensor) -> _Tries:
    warped, visible = places.shifted(shifts).interpolate(other)
    mask = cut(visible)
    return _Tries(shifts, *_correlate(blocks, cut(warped), mask), mask)


def _likely_shifts(image: Tensor, other: Tensor, places: Places) -> Tensor:
    """Shifts ``[LIKELY, 2]`` with which most blocks agree, as every other pixel tells."""
    shifts, side = _constants(image.device).shifts, BLOCK // 2
    thinned = Places(*(x[::2, ::2] for x in places))
    there, visible = thinned.shifted(shifts).sample(other)
    mask = cut(visible, side)
    tries = _Tries(shifts, *_correlate(cut(image[::2, ::2], side), cut(there, side), mask), mask)
    return shifts[_in_order(tries.share())[:LIKELY]]


def _in_order(share: Tensor) -> Tensor:
    """Indices of the shares ``[S]``, the largest first, of equal ones the first."""
    return share.argsort(descending=True, stable=True)


def _correlate(a: Tensor, b: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Which blocks of a ``[N, P]`` and b ``[S, N, P]`` agree, and which can tell, each ``[S, N]``.

    Those can that have texture and are visible in both. Means are near zero in both, so that the
    differences of their moments keep their digits.
    """
    # No matrix products, which a GPU may compute in TF32.
    mask = visible.float()
    a, b = a - a.mean(-1, keepdim=True), b * mask
    count, sum_a, sum_aa = mask.sum(-1), (mask * a).sum(-1), (mask * (a * a)).sum(-1)
    sum_b, sum_ab, sum_bb = b.sum(-1), (b * a).sum(-1), (b * b).sum(-1)
    n = count.clip(1)
    variance_a, variance_b = sum_aa - sum_a**2 / n, sum_bb - sum_b**2 / n
    covariance = sum_ab - sum_a * sum_b / n
    usable = count > MIN_OVERLAP * b.shape[-1]
    usable = usable & (torch.maximum(variance_a, variance_b) > MIN_CONTRAST**2 * n)
    agreeing = usable & (torch.minimum(variance_a, variance_b) > PLAIN**2 * n)
    agreeing = agreeing & (covariance > MATCH * (variance_a * variance_b).clip(0).sqrt())
    return agreeing, usable
