# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Rendered tracks in the GPU's memory, and the clips that training cuts from them."""

from typing import NamedTuple

import torch
from torch import Tensor


class Clips(NamedTuple):
    """A batch of clips.

    ``images [B, S, 3, H, W]`` in [0, 1], ``depth [B, S, H, W]`` metres (0 unknown), camera-to-world
    ``poses [B, S, 4, 4]`` and ``focal [B, 2]`` (x, y) pixels.
    """

    images: Tensor
    depth: Tensor
    poses: Tensor
    focal: Tensor


class TrackStore:
    """A ring of ``capacity`` tracks of ``length`` frames; new tracks replace the oldest."""

    def __init__(
        self, capacity: int, length: int, size: tuple[int, int], device: torch.device
    ) -> None:
        self.capacity, self.length = capacity, length
        # Never read before it is written; on a CPU memory comes only then.
        self._images = torch.empty((capacity, length, 3, *size), dtype=torch.uint8, device=device)
        self._depth = torch.empty((capacity, length, *size), dtype=torch.float16, device=device)
        self._poses = torch.empty((capacity, length, 4, 4), device=device)
        self._focal = torch.empty((capacity, 2), device=device)
        self._next = 0
        self.filled = 0

    def add(self, images: Tensor, depth: Tensor, poses: Tensor, focal: Tensor) -> None:
        """Take a track: ``images [length, 3, H, W]`` uint8, ``depth``, ``poses``, ``focal [2]``."""
        slot = self._next
        self._images[slot] = images
        self._depth[slot] = depth
        self._poses[slot] = poses
        self._focal[slot] = focal
        self._next = (slot + 1) % self.capacity
        self.filled = max(self.filled, slot + 1)

    def sample(self, clips: int, frames: int, max_stride: int, generator: torch.Generator) -> Clips:
        """Cut clips at random places, half of them backwards.

        Half of them advance by a fixed number of frames, up to ``max_stride``, the others by up to
        as many, differently each time, as people take photographs.
        """
        device = self._images.device

        def draw(high: Tensor) -> Tensor:
            return (torch.rand(clips, generator=generator) * high).long()

        longest = min(max_stride, (self.length - 1) // max(frames - 1, 1))
        stride = 1 + draw(torch.tensor(longest))
        steps = stride[:, None].expand(clips, frames - 1)
        uneven = 1 + (torch.rand(steps.shape, generator=generator) * steps).long()
        steps = torch.where(torch.rand((clips, 1), generator=generator) < 0.5, steps, uneven)
        travelled = torch.cat((steps.new_zeros(clips, 1), steps.cumsum(1)), dim=1)
        start = draw(self.length - travelled[:, -1])
        index = start[:, None] + travelled
        backwards = torch.rand(clips, generator=generator) < 0.5
        index = torch.where(backwards[:, None], index.flip(1), index).to(device)
        track = draw(torch.tensor(self.filled))[:, None].to(device)
        return Clips(
            self._images[track, index].float() / 255,
            self._depth[track, index].float(),
            self._poses[track, index],
            self._focal[track[:, 0]],
        )


def mirror(clips: Clips, chosen: Tensor) -> Clips:
    """Mirror the clips ``chosen [B]`` (bool) left to right: images, depth and the world.

    The column that the mirrored camera sees beyond the image's edge repeats its neighbour; its
    depth is unknown.
    """

    def flip(x: Tensor) -> Tensor:
        # The principal point is W/2 with pixel centres at integers: column u comes to W - u.
        return x.flip(-1).roll(1, dims=-1)

    images, depth = flip(clips.images), flip(clips.depth)
    images[..., 0], depth[..., 0] = images[..., 1], 0
    sign = torch.tensor([-1.0, 1, 1, 1], device=depth.device)
    poses = sign[:, None] * clips.poses * sign

    def choose(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(chosen.view(-1, *(1,) * (a.ndim - 1)), a, b)

    return Clips(
        choose(images, clips.images),
        choose(depth, clips.depth),
        choose(poses, clips.poses),
        clips.focal,
    )


def join(parts: list[Clips]) -> Clips:
    """One batch of several."""
    return Clips(*(torch.cat(tensors) for tensors in zip(*parts)))
