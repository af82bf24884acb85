# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whether two frames show one scene: an image, seen through the geometry that the network gave.

A network that is shown another place does not say so: it goes on from its last pose, with familiar
depth and confidence. The images tell. If pose and depth are right, each pixel of a frame has its
place in the frame before, and small blocks of the two correlate whatever the exposure. A pose that
is off by some degrees shifts all of them, so where they do not correlate they may all be shifted
alike. Between different scenes, or to noise, they correlate by chance only, however shifted. Where
they correlate both frames must also say the same of the depth: if they do not, the network's unit
has jumped.

All of it is computed on the network's device and none of it waits, so that a GPU gets this work
behind the network's, while the host has nothing to do but wait for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lingbot_map_ros.geometry.poses import invert
from lingbot_map_ros.geometry.projection import MIN_DEPTH
from lingbot_map_ros.streaming.block_matching import MIN_BLOCKS, Places, cut, find

GREY = 128.0
"""Grey level that images are compared from."""
MAX_FLOW = 0.5
"""Of the image's width: what has moved further is half out of view, and little can be said of it.
Shown noise or another room, the small model answers with flow of up to 0.54. With 0.25 it hid some
of them, and withheld as many good frames of the hardest motion, two to ten images a second."""


class Sketch(NamedTuple):
    """What a comparison needs of a frame, on the network's device."""

    thumbnail: Tensor
    """Grey levels ``[h, w]`` in 0 to 255."""
    depth: Tensor | None
    """``[h, w]`` at the centres of the thumbnail's pixels, raw units of the window."""
    pose: Tensor
    """``[4, 4]`` float64, camera-to-world, raw units of the window."""
    intrinsics: Tensor
    """``[3, 3]`` float64, of the thumbnail."""


@dataclass(frozen=True)
class Comparison:
    """What a frame and the one before it say of each other."""

    agreement: float
    """Share of the blocks, 0 to 1, that show the same."""
    log_scale: float | None
    """Log of the factor between what the two say of the depth where they show the same; None if
    one has no depth, or too few blocks agree."""

    @classmethod
    def of(cls, figures: NDArray[np.float32]) -> Comparison | None:
        """Read what `compare` has made; None where nothing can be said."""
        told, agreement, log_scale = (float(figure) for figure in figures)
        return cls(agreement, None if np.isnan(log_scale) else log_scale) if told else None


@torch.no_grad()
def compare(last: Sketch, frame: Sketch, max_flow: float = MAX_FLOW) -> Tensor | None:
    """Compare a frame with the one before it, both of one window; for `Comparison.of`, on the host.

    Nothing can be said where neither frame has depth, too few blocks have texture and are seen by
    both, or the image moved by more than `max_flow` of its width between them.
    """
    seen, other = (frame, last) if frame.depth is not None else (last, frame)
    image, there = (sketch.thumbnail - GREY for sketch in (seen, other))
    places = None if seen.depth is None else _places(seen, seen.depth, other)
    found = None if places is None else find(image, there, places)
    if places is None or found is None:
        return None
    told = found.enough & ~_moved(places, max_flow * image.shape[1])
    log_scale = torch.full_like(found.share, torch.nan)
    if other.depth is not None:
        said, _ = places.shifted(found.shift[None]).sample(other.depth)
        ratio = cut(places.z.clip(MIN_DEPTH) / said[0].clip(MIN_DEPTH))
        factor = ratio.masked_fill(~found.pixels, torch.nan).flatten().nanmedian(0).values
        few = found.pixels.any(-1).sum() < MIN_BLOCKS
        log_scale = factor.log().masked_fill(few, torch.nan)
    return torch.stack((told.float(), found.share, log_scale))


def _places(seen: Sketch, depth: Tensor, other: Sketch) -> Places:
    """Places of a thumbnail's pixels, of this depth, in the other's."""
    K = seen.intrinsics
    x, y = (
        (torch.arange(length, device=depth.device) - K[axis, 2]) / K[axis, axis]
        for axis, length in enumerate(depth.shape[::-1])
    )
    # A point at depth * (x, y, 1) lies there at depth * R @ (x, y, 1) + t, up to the division.
    M = other.intrinsics @ (invert(other.pose) @ seen.pose)[:3]
    X, Y, one, t = M.float().T[:, :, None, None]
    there = depth * (X * x.float() + (Y * y.float()[:, None] + one)) + t
    u, v = there[:2] / there[2].clip(MIN_DEPTH)
    return Places(u, v, there[2])


def _moved(places: Places, limit: float) -> Tensor:
    """Whether the median pixel lies further than `limit` from where it was."""
    rows, columns = (torch.arange(n, device=places.u.device) for n in places.u.shape)
    squared = (places.u - columns) ** 2 + (places.v - rows[:, None]) ** 2
    return 2 * (squared > limit**2).sum() > squared.numel()
