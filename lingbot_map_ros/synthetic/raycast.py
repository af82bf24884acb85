# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Ray-casting core: where rays hit convex primitives, in torch.

Everything has static shapes: B worlds, F frames each, R rays a frame, P primitives a world, so
that the functions can be compiled.  Rays are (u, v) of directions (u, v, 1) in optical axes, so
the parameter along a ray is the z-depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import world as w
from .world import World

FAR = 1.0e6


@dataclass
class Scene:
    """Worlds on a device, float32, with the counts of boxes, cylinders and spheres.

    The primitives are laid out as in ``World``: ``affine`` [B,P,3,4], ``half`` [B,P,3],
    ``surfaces`` [B,P,FACES,C]; ``lights`` [B,L,6] holds position and colour, ``ambient`` [B,3].
    """

    affine: Tensor
    half: Tensor
    surfaces: Tensor
    lights: Tensor
    ambient: Tensor
    counts: tuple[int, int, int] = (w.BOXES, w.CYLINDERS, w.SPHERES)

    @staticmethod
    def stack(worlds: Sequence[World], device: torch.device) -> Scene:
        """Batch worlds and move them to a device in one copy each."""
        lights = [np.concatenate([x.light_position, x.light_colour], -1) for x in worlds]

        def upload(arrays: list[NDArray[np.float64]]) -> Tensor:
            return torch.from_numpy(np.stack(arrays)).to(device, torch.float32)

        return Scene(
            upload([x.local_affine() for x in worlds]),
            upload([x.half for x in worlds]),
            upload([x.surfaces for x in worlds]),
            upload(lights),
            upload([x.ambient for x in worlds]),
        )

    def repeat(self, times: int) -> Scene:
        """Each world several times in a row."""
        return Scene(
            self.affine.repeat_interleave(times, 0),
            self.half.repeat_interleave(times, 0),
            self.surfaces.repeat_interleave(times, 0),
            self.lights.repeat_interleave(times, 0),
            self.ambient.repeat_interleave(times, 0),
            self.counts,
        )

    def keep(self, wanted: Tensor) -> Scene:
        """Drop primitives from a scene of one world: wanted [P] bool on the CPU, shell kept."""
        nb, nc, ns = self.counts
        index = wanted.nonzero()[:, 0]
        boxes, cylinders, spheres = (int(x.sum()) for x in wanted[:-1].split([nb, nc, ns]))
        parts = (self.affine[:, index], self.half[:, index], self.surfaces[:, index])
        return Scene(*parts, self.lights, self.ambient, (boxes, cylinders, spheres))


def cast(scene: Scene, poses: Tensor, rays: Tensor) -> tuple[Tensor, Tensor]:
    """Nearest hit: z-depth [B,F,R] and primitive index [B,F,R] (int32).

    ``poses`` [B,F,4,4] camera-to-world; ``rays`` [B,R,2], the same for all frames of a world.
    """
    nb, nc, ns = scene.counts
    # Camera to unit primitive, once for each frame and primitive: only six products a ray remain.
    # Sums in place of matmul, which a training loop may have set to TF32 or bfloat16.
    linear, shift = scene.affine[:, None, :, :, :3], scene.affine[:, None, :, :, 3]
    local = (linear[..., None] * poses[:, :, None, None, :3, :3]).sum(-2)
    start = (linear * poses[:, :, None, None, :3, 3]).sum(-1) + shift
    u, v = (rays[:, None, None, :, k] for k in (0, 1))

    def components(first: int, last: int) -> tuple[list[Tensor], list[Tensor]]:
        """Origin and direction [B,F,P,R] along each unit axis."""
        m, o = local[:, :, first:last, None], start[:, :, first:last, None]
        return (
            [o[..., i] for i in range(3)],
            [m[..., i, 0] * u + (m[..., i, 1] * v + m[..., i, 2]) for i in range(3)],
        )

    shell = _slabs(*components(nb + nc + ns, nb + nc + ns + 1), axes=(0, 1, 2))[1][:, :, 0]
    best, index = shell, torch.full_like(shell, nb + nc + ns, dtype=torch.int32)
    groups = ((_box, 0, nb), (_cylinder, nb, nb + nc), (_sphere, nb + nc, nb + nc + ns))
    for interval, first, last in groups:
        if last == first:
            continue
        near, far = interval(*components(first, last))
        t, which = torch.where((near < far) & (near > 0), near, FAR).min(-2)
        index = torch.where(t < best, which.to(torch.int32) + first, index)
        best = torch.minimum(best, t)
    return best, index


def _slabs(o: list[Tensor], d: list[Tensor], axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Entry and exit along the given axes of the unit cube."""
    near, far = None, None
    for i in axes:
        inverse = 1.0 / torch.where(d[i].abs() < 1e-12, 1e-12, d[i])
        middle, reach = -o[i] * inverse, inverse.abs()
        enter, leave = middle - reach, middle + reach
        near = enter if near is None else torch.maximum(near, enter)
        far = leave if far is None else torch.minimum(far, leave)
    return near, far  # type: ignore[return-value]


def _box(o: list[Tensor], d: list[Tensor]) -> tuple[Tensor, Tensor]:
    return _slabs(o, d, (0, 1, 2))


def _quadric(o: list[Tensor], d: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Entry and exit of the unit sphere, or unit circle, in as many dimensions as given."""
    a, b, c = d[0] * d[0], o[0] * d[0], o[0] * o[0] - 1.0
    for x, y in zip(o[1:], d[1:]):
        a, b, c = a + y * y, b + x * y, c + x * x
    root = b * b - a * c
    # A ray that misses gets an empty interval.
    reach = torch.where(root > 0, root.clamp(min=0).sqrt(), -FAR)
    return (-b - reach) / a, (-b + reach) / a


def _cylinder(o: list[Tensor], d: list[Tensor]) -> tuple[Tensor, Tensor]:
    near, far = _quadric(o[:2], d[:2])
    low, high = _slabs(o, d, (2,))
    return torch.maximum(near, low), torch.minimum(far, high)


def _sphere(o: list[Tensor], d: list[Tensor]) -> tuple[Tensor, Tensor]:
    return _quadric(o, d)
